"""The options of autoload_to_table become a Source, in Sluice's spelling and in others'."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from sluice.autoload import options
from sluice.declare import Source
from sluice.errors import UsageError


def source(source_format: str = "json", /, **said: Any) -> Source:
    return options.build_autoload_source("visits", "in", source_format, said)


def test_without_options_it_is_the_source_that_a_name_alone_declares() -> None:
    assert source() == Source(name="visits", path="in")


def test_auto_loaders_spellings_mean_the_fields_of_a_source() -> None:
    said = {
        "cloudFiles.schemaHints": "id BIGINT",
        "cloudFiles.inferColumnTypes": "false",
        "cloudFiles.schemaEvolutionMode": "rescue",
        "cloudFiles.maxFilesPerTrigger": "10",
        "cloudFiles.maxBytesPerTrigger": "10g",
        "cloudFiles.allowOverwrites": "false",
        "cloudFiles.includeExistingFiles": "false",
        "cloudFiles.cleanSource": "MOVE",
        "pathglobfilter": "*.json",
        "multiLine": "true",
        "charset": "latin-1",
    }
    assert source(**said) == Source(
        name="visits",
        path="in",
        schema_hints="id BIGINT",
        infer_types=False,
        schema_evolution="rescue",
        max_files_per_trigger=10,
        max_bytes_per_trigger="10g",
        allow_overwrites=False,
        include_existing_files=False,
        clean_source="archive",
        pattern="*.json",
        multi_line=True,
        encoding="latin-1",
    )


def test_widening_is_a_mode_there_and_an_option_here() -> None:
    found = source(**{"cloudFiles.schemaEvolutionMode": "addNewColumnsWithTypeWidening"})
    assert (found.schema_evolution, found.widen_types) == ("add_new_columns", True)


def test_csv_takes_sparks_options_and_multi_line_which_it_always_is() -> None:
    found = source("csv", sep=";", header="true", quote="'", multiLine=True)
    assert (found.delimiter, found.header, found.quote, found.multi_line) == (";", True, "'", False)


def test_formats_are_found_in_spelling_of_auto_loader() -> None:
    assert source("binaryFile").format == "binary"
    assert source("JSON").format == "json"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"schema_hint": "id BIGINT"}, "Did you mean 'schema_hints'?"),
        ({"cloudFiles.schemaHint": "id BIGINT"}, "Did you mean 'cloudFiles.schemaHints'?"),
        ({"sep": ";", "delimiter": ","}, "say the same thing"),
        ({"multi_line": "perhaps"}, "multi_line is True or False"),
        ({"max_files_per_trigger": "many"}, "max_files_per_trigger is a number"),
        ({"cloudFiles.schemaEvolutionMode": "addColumns"}, "Did you mean 'addnewcolumns'?"),
        ({"cloudFiles.schemaLocation": "/x"}, "lies in the checkpoint directory"),
        ({"into": "other"}, "it is of a Source in a pipeline"),
        ({"Keep_For": "400 days"}, "it is of a Source in a pipeline"),
        ({"subject_at": "at"}, "it is of a Source in a pipeline"),
        ({"format": "csv"}, "the arguments say it"),
        ({"pathGlobFilter": "*.{json,gz}"}, r"pattern '\*\.{json,gz}' has a '{'"),
        ({"schema_evolution": "grow"}, "unknown schema_evolution"),
        ({"redelivery": "replace"}, "read of each _file the rows with the greatest _delivery"),
    ],
)
def test_a_wrong_option_is_an_error_that_says_what_to_write(said: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told.replace("?", r"\?")):
        source(**said)


def test_what_is_an_option_is_said_without_another_one_that_is_none() -> None:
    """Every field of a Source is an option, an argument, or refused because it needs a pipeline; none is accepted that needs a refused one."""
    taken = {field.name for field in fields(Source)}
    for name in sorted(taken):
        try:
            source(**{name: getattr(Source(name="visits"), name)})
        except UsageError as error:
            taken.discard(name)
            assert f"'{name}' is no option here" in str(error)
    assert not taken & {
        "subject",
        "domain",
        "subject_in",
        "subject_at",
        "dated_by",
        "keep_for",
        "personal",
        "into",
        "may_refresh",
    }
    assert {"schema", "schema_hints", "most_columns", "most_growth", "clean_after_days", "redelivery"} <= taken
