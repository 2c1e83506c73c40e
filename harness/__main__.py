"""`python -m tunegen.harness SCOPE`: the standard tuner, for scopes without a script of their own."""

import sys

from tunegen.harness.tuner import main

if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
    sys.exit("usage: python -m tunegen.harness SCOPE [options]")
main(sys.argv[1], sys.argv[2:])
