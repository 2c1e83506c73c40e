"""Published values: generations that never change, and batches of which all is published or nothing."""

from __future__ import annotations

import threading

import msgspec
import pytest

from tunegen.box import Box
from tunegen.choosing import published
from tunegen.choosing.published import Publications
from tunegen.errors import ParameterError
from tunegen.parameters import Key, Parameter, read_schema

BOX = Box("x86_64", "amd", "25", "97", "znver4", ("avx", "avx2"), 2)
OTHER = msgspec.structs.replace(BOX, threads=4)
KEY, SECOND = Key("lib", "exp", "exp", "f32"), Key("lib", "exp", "exp", "f64")
SCHEMA = read_schema(
    [Parameter("a", "int", 1, 0, 9, doc="One."), Parameter("b", "int", 2, 0, 9, doc="Two.")], ["a <= b"]
)
SCHEMAS = {KEY: SCHEMA, SECOND: SCHEMA}


def test_a_generation_never_changes():
    place = Publications()
    first = place.current
    values = {"a": 3, "b": 4}
    second = place.publish({(KEY, BOX): values}, SCHEMAS)
    values["a"] = 9
    assert (first.number, dict(first.values)) == (0, {})
    assert (second.number, second.get(KEY, BOX)) == (1, {"a": 3, "b": 4})
    third = place.publish({(KEY, BOX): {"a": 5, "b": 5}}, SCHEMAS)
    assert (second.get(KEY, BOX), third.get(KEY, BOX)) == ({"a": 3, "b": 4}, {"a": 5, "b": 5})
    for frozen in (third.values, third.values[KEY, BOX]):
        with pytest.raises(TypeError):
            frozen["a"] = 1
    with pytest.raises(AttributeError):
        third.number = 9


def test_profiles_of_several_boxes_coexist():
    place = Publications()
    place.publish({(KEY, BOX): {"a": 3, "b": 4}}, SCHEMAS)
    found = place.publish({(KEY, OTHER): {"a": 5, "b": 6}, (SECOND, BOX): {"a": 0, "b": 0}}, SCHEMAS)
    assert found.get(KEY, BOX) == {"a": 3, "b": 4}
    assert found.get(KEY, OTHER) == {"a": 5, "b": 6}
    assert found.get(SECOND, OTHER) is None
    assert found.get(SECOND, OTHER, any_threads=True) == {"a": 0, "b": 0}
    assert found.get(SECOND, msgspec.structs.replace(OTHER, model="1"), any_threads=True) is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"a": 3}, "b is missing"),
        ({"a": 3, "b": 4, "c": 5}, "unknown parameter 'c'"),
        ({"a": 3, "b": 10}, "b=10"),
        ({"a": True, "b": 4}, "a=True"),
        ({"a": 3.0, "b": 4}, "a=3.0"),
        ({"a": 5, "b": 4}, "a <= b"),
    ],
)
def test_a_batch_with_one_rejected_set_publishes_nothing(wrong, said):
    place = Publications()
    before = place.publish({(KEY, BOX): {"a": 3, "b": 4}}, SCHEMAS)
    with pytest.raises(ParameterError) as error:
        place.publish({(KEY, BOX): {"a": 7, "b": 8}, (SECOND, BOX): wrong}, SCHEMAS)
    assert said in str(error.value)
    assert str(SECOND) in str(error.value)
    assert place.current is before


def test_all_that_is_wrong_in_a_batch_is_said_at_once():
    unknown = msgspec.structs.replace(KEY, kernel="log")
    with pytest.raises(ParameterError) as error:
        Publications().publish({(unknown, BOX): {}, (KEY, BOX): {"a": 99, "b": 98}}, SCHEMAS)
    assert [p.split("=")[0].split(": ")[-1] for p in error.value.problems] == ["there is no such key", "a", "b"]


def test_what_is_withdrawn_is_gone_and_no_change_makes_no_generation():
    place = Publications()
    place.publish({(KEY, BOX): {"a": 3, "b": 4}, (SECOND, BOX): {"a": 3, "b": 4}}, SCHEMAS)
    found = place.withdraw([(KEY, BOX), (KEY, OTHER)])
    assert (found.number, list(found.values)) == (2, [(SECOND, BOX)])
    assert place.withdraw([(KEY, BOX)]) is found
    assert place.publish({(SECOND, BOX): {"a": 3, "b": 4}}, SCHEMAS) is found


def test_writers_at_once_lose_nothing_and_readers_see_whole_batches():
    place, torn, done = Publications(), [], threading.Event()

    def read():
        while not done.is_set():
            found = place.current
            a, b = found.get(KEY, BOX), found.get(SECOND, BOX)
            if a != b:
                torn.append((a, b))

    def write(threads):
        for n in range(200):
            values = {"a": n % 3, "b": 9}
            own = msgspec.structs.replace(BOX, threads=threads)
            place.publish({(KEY, BOX): values, (SECOND, BOX): values, (KEY, own): values}, SCHEMAS)

    writers = [threading.Thread(target=write, args=(n,)) for n in (11, 12, 13)]
    reader = threading.Thread(target=read)
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert not torn
    assert {box.threads for _, box in place.current.values} == {2, 11, 12, 13}


def test_the_process_has_one_place_to_publish():
    assert published.current().number == 0
    published.publish({(KEY, BOX): {"a": 1, "b": 1}}, SCHEMAS)
    assert published.current().get(KEY, BOX) == {"a": 1, "b": 1}
    assert published.withdraw([(KEY, BOX)]).values == {}
