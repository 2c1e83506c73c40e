"""`python -m tunegen` is `tunegen`."""

from tunegen.cli import main

if __name__ == "__main__":
    main()
