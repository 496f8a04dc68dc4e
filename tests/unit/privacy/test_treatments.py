"""Treatments of personal columns: what is stored of each, the same pseudonym in Python and in Spark, and no key in any plan."""

from __future__ import annotations

import base64
import hashlib
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.declare import treat
from sluice.declare.privacy.treat import Treatment
from sluice.errors import DeclarationError
from sluice.privacy import secrets, treatments
from sluice.privacy.pseudonyms import PseudonymSpec, add_pseudonym_columns, canonical_text, compute_pseudonym
from sluice.settings import Settings

pytestmark = pytest.mark.spark

KEY = bytes(range(32, 64))
FORMS: tuple[treat.Canonical, ...] = ("text", "lower", "digits", "hex")


def stored(settings: Settings, spark: SparkSession, kind: str, values: list[Any], how: Treatment) -> tuple[str, list[Any]]:
    """The type and the values that a treatment leaves of a column."""
    frame = spark.createDataFrame(list(enumerate(values)), f"n INT, `a.b` {kind}, z INT".replace(", z INT", ""))
    found = treatments.apply_treatments(settings, frame, {"a.b": how})
    assert found.columns == ["n", "a.b"]
    return found.schema["a.b"].dataType.simpleString(), [row[1] for row in found.orderBy("n").collect()]


@pytest.mark.parametrize(
    ("kind", "how", "given", "type_then", "then"),
    [
        ("INT", treat.null(), [1, None], "int", [None, None]),
        ("STRING", treat.truncate(3), ["50122", "é🙂xy", "1", None], "string", ["501", "é🙂x", "1", None]),
        ("STRING", treat.truncate(0), ["50122"], "string", [""]),
        (
            "INT",
            treat.bin(18, 25, 65),
            [-1, 17, 18, 24, 25, 64, 65, None],
            "string",
            ["<18", "<18", "18-24", "18-24", "25-64", "25-64", ">=65", None],
        ),
        ("INT", treat.bin(5, 6), [4, 5, 6], "string", ["<5", "5", ">=6"]),
        (
            "DOUBLE",
            treat.bin(18, 25),
            [17.9, 24.9, float("nan"), float("inf")],
            "string",
            ["<18", "18-24", None, ">=25"],
        ),
        ("DECIMAL(4,1)", treat.bin(0), [Decimal("-0.1"), Decimal("0.0")], "string", ["<0", ">=0"]),
        ("INT", treat.round(-3), [1499, 1500, -1500, 2147483647, None], "int", [1000, 2000, -2000, None, None]),
        ("BIGINT", treat.round(-3), [9223372036854775807, 1501], "bigint", [None, 2000]),
        ("BIGINT", treat.round(2), [9223372036854775807], "bigint", [9223372036854775807]),
        ("DECIMAL(5,2)", treat.round(0), [Decimal("999.99"), Decimal("1.50")], "decimal(5,2)", [None, Decimal("2.00")]),
        ("DATE", treat.date_to_year(), [date(1987, 12, 31), None], "date", [date(1987, 1, 1), None]),
        ("TIMESTAMP", treat.date_to_year(), [datetime(1987, 12, 31, 23, 59)], "timestamp", [datetime(1987, 1, 1)]),
        ("TIMESTAMP_NTZ", treat.date_to_year(), [datetime(1987, 12, 31)], "timestamp_ntz", [datetime(1987, 1, 1)]),
    ],
)
def test_what_is_stored(
    settings: Settings, spark: SparkSession, kind: str, how: Treatment, given: list[Any], type_then: str, then: list[Any]
) -> None:
    assert stored(settings, spark, kind, given, how) == (type_then, then)


def test_a_rounded_number_is_never_minus_zero(settings: Settings, spark: SparkSession) -> None:
    _, found = stored(settings, spark, "DOUBLE", [-0.4, 0.4, 1.26], treat.round(0))
    assert [str(value) for value in found] == ["0.0", "0.0", "1.0"]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("STRING", " 17 ", "17"),
        ("INT", 17, "17"),
        ("BIGINT", 17, "17"),
        ("DATE", date(2026, 1, 2), "2026-01-02"),
        ("DECIMAL(3,0)", Decimal(17), "17"),
    ],
)
def test_equal_identifiers_get_one_pseudonym_whatever_their_type(
    settings: Settings, spark: SparkSession, kind: str, value: Any, text: str
) -> None:
    found = stored(settings, spark, kind, [value, None], treat.hmac("user"))
    key = secrets.read_secret_key(settings, treat.PSEUDONYM_KEY)
    assert found == ("string", [compute_pseudonym(key, "user", text), None])


def test_a_pseudonym_of_a_small_number_is_no_hash_that_can_be_tried_out(settings: Settings, spark: SparkSession) -> None:
    numbers = list(range(500))
    _, found = stored(settings, spark, "INT", numbers, treat.hmac("user"))
    assert len(set(found)) == len(numbers)
    for name in ("sha256", "sha512", "sha1", "md5"):
        hashes = {hashlib.new(name, str(number).encode()).hexdigest()[:32] for number in numbers}
        assert not {one[:32] for one in found} & hashes, name
    _, elsewhere = stored(settings, spark, "INT", numbers, treat.hmac("device"))
    assert not set(found) & set(elsewhere), "two domains cannot be joined"
    _, other_key = stored(settings, spark, "INT", numbers, treat.hmac("user", secret="research.key"))
    assert not set(found) & set(other_key)


@pytest.mark.parametrize(
    ("canonical", "written"),
    [
        ("text", ["a@b", " a@b\t", "\u00a0a@b\r\n"]),
        ("lower", ["a@b", " A@B"]),
        ("digits", ["39055123", "39 (055) 123", "39-055/123"]),
        ("hex", ["00AB12", "00:ab:12", "00-AB-12"]),
    ],
)
def test_ways_to_write_one_identifier_are_one(
    settings: Settings, spark: SparkSession, canonical: treat.Canonical, written: list[str]
) -> None:
    _, found = stored(settings, spark, "STRING", written, treat.hmac("x", canonical=canonical))
    assert len(set(found)) == 1 and found[0]


@pytest.mark.parametrize("canonical", FORMS)
def test_what_holds_no_identifier_has_no_pseudonym(settings: Settings, spark: SparkSession, canonical: treat.Canonical) -> None:
    _, found = stored(settings, spark, "STRING", ["", " \t\u00a0", None], treat.hmac("x", canonical=canonical))
    assert found == [None, None, None]
    assert compute_pseudonym(KEY, "x", " \t\u00a0", canonical) is None


def in_spark(spark: SparkSession, texts: list[str]) -> list[tuple[str | None, ...]]:
    frame = spark.createDataFrame(list(enumerate(texts)), "n INT, t STRING")
    hashed = add_pseudonym_columns(frame, {form: PseudonymSpec(KEY, "d", F.col("t"), form) for form in FORMS})
    return [tuple(row[form] for form in FORMS) for row in hashed.orderBy("n").collect()]


def in_python(texts: list[str]) -> list[tuple[str | None, ...]]:
    return [tuple(compute_pseudonym(KEY, "d", text, form) for form in FORMS) for text in texts]


@examples(max_examples=5, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=12), min_size=200, max_size=300))
def test_pseudonyms_are_the_same_in_python_and_in_spark(spark: SparkSession, texts: list[str]) -> None:
    assert in_spark(spark, texts) == in_python(texts)


def test_blanks_and_cases_of_all_letters_are_the_same_in_python_and_in_spark(spark: SparkSession) -> None:
    texts = [f" {chr(point)}x{chr(point)} " for point in range(1, 0x2100) if chr(point).isprintable() or chr(point).isspace()]
    texts += ["ΟΔΟΣ", "İSTANBUL", "Straße", "ǅ"]
    different = [text for text, here, there in zip(texts, in_python(texts), in_spark(spark, texts), strict=True) if here != there]
    assert different == []


def test_a_canonical_form_of_a_canonical_form_is_itself() -> None:
    for form in FORMS:
        once = canonical_text(" 00:AB-é ", form)
        assert canonical_text(once, form) == once


def everything_shown(frame: DataFrame) -> str:
    """All that Spark can say of a query."""
    execution = frame._jdf.queryExecution()
    modes = frame.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode
    shown = [execution.toString(), execution.stringWithStats()]
    shown += [execution.explainString(modes.fromString(mode)) for mode in ("extended", "codegen", "cost", "formatted")]
    return "\n".join(shown)


def forms_of(value: bytes) -> list[str]:
    """How a key could be written: as text, in hex, in base64, as a list of bytes; the beginnings of it, too."""
    signed = ", ".join(str(byte - 256 if byte > 127 else byte) for byte in value[:12])
    return [value.decode("latin1")[:12], value.hex()[:24], base64.b64encode(value).decode()[:20], signed]


def test_neither_the_key_nor_a_pad_is_in_a_plan(settings: Settings, spark: SparkSession) -> None:
    as_in_jobs = spark.newSession()
    for what in ("adaptive.enabled", "codegen.wholeStage"):
        as_in_jobs.conf.set(f"spark.sql.{what}", "true")
    frame = as_in_jobs.createDataFrame([(1, "a")], "id INT, name STRING")
    found = treatments.apply_treatments(settings, frame, {"id": treat.hmac("user"), "name": treat.hmac("name")})
    found.collect()
    shown = everything_shown(found)
    assert "sha2" in shown
    key = secrets.read_secret_key(settings, treat.PSEUDONYM_KEY)
    told = [key, bytes.fromhex(key.decode())]
    for domain in ("user", "name"):
        told += [bytes(pad) for pad in PseudonymSpec(key, domain, F.col("id")).pads()]
    for value in told:
        for text in forms_of(value):
            assert text.lower() not in shown.lower()
    # The search would find it: this one has a pad as a literal.
    naive = frame.select(F.sha2(F.concat(F.lit(told[2]), F.col("name").cast("binary")), 256))
    assert told[2].hex()[:24] in everything_shown(naive).lower()


@pytest.mark.parametrize(
    ("kind", "how", "fits"),
    [
        ("DOUBLE", treat.hmac("x"), "treat.hmac, which is for texts, whole numbers"),
        ("TIMESTAMP", treat.hmac("x"), "treat.hmac"),
        ("BINARY", treat.hmac("x"), "treat.hmac"),
        ("INT", treat.truncate(2), "treat.truncate, which is for texts"),
        ("DATE", treat.bin(18), "treat.bin, which is for numbers"),
        ("STRING", treat.bin(18), "treat.bin"),
        ("STRING", treat.round(1), "treat.round"),
        ("STRING", treat.date_to_year(), "treat.date_to_year"),
        ("STRUCT<x: INT>", treat.hmac("x"), "STRUCT<X:INT>"),
    ],
)
def test_a_treatment_that_does_not_fit_its_column_is_refused(spark: SparkSession, kind: str, how: Treatment, fits: str) -> None:
    with pytest.raises(DeclarationError, match=r"^Table 't': personal treats 'c', which is ") as caught:
        treatments.apply_treatments(None, spark.createDataFrame([], f"c {kind}"), {"c": how}, "Table 't'")
    assert fits in str(caught.value)


def test_an_unknown_column_is_refused_with_the_nearest(spark: SparkSession) -> None:
    with pytest.raises(DeclarationError, match=r"personal names 'user_ids', no column of it\. Did you mean 'user_id'"):
        treatments.apply_treatments(None, spark.createDataFrame([], "user_id INT"), {"user_ids": treat.null()}, "Table 't'")


def test_columns_alone_are_asked_for_without_a_key(settings: Settings, spark: SparkSession) -> None:
    treatments.apply_treatments(None, spark.createDataFrame([], "user_id INT"), {"user_id": treat.hmac("user")})
    assert not settings.secrets.exists()
