"""Values that stand in a file's path."""

from __future__ import annotations

from sluice.ingest.reading import path_values


def test_folders_with_an_equals_sign_are_values() -> None:
    assert path_values.of_file("date=2026-11-20/hour=07/a=b.json") == {"date": "2026-11-20", "hour": "07"}
    assert path_values.of_file("a.json") == {}
    assert path_values.of_file("2026/=x/plain/a.json") == {}


def test_values_are_decoded_and_equals_signs_and_blanks_belong_to_them() -> None:
    assert path_values.of_file("where=a%2Fb%20c/full%20name=%C3%A9=1+1/a") == {"where": "a/b c", "full name": "\u00e9=1+1"}


def test_an_empty_value_is_one_and_hives_sign_for_none_is_none() -> None:
    assert path_values.of_file("a=/b=__HIVE_DEFAULT_PARTITION__/c") == {"a": ""}


def test_of_a_name_that_comes_twice_the_inner_folder_counts() -> None:
    assert path_values.of_file("a=1/a=2/f") == {"a": "2"}
    assert path_values.of_file("a=1/a=__HIVE_DEFAULT_PARTITION__/f") == {}
