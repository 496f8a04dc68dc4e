"""What `sluice sql` asks: queries over what may be named, and nothing else that this version of Spark has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tests import sql_refusals

from sluice.errors import UsageError
from sluice.lake.sql_allowed import ASKING, EXPRESSIONS, FUNCTIONS, LISTING, NODES, TABLE_FUNCTIONS
from sluice.lake.sql_judgement import analyse_query, check_query_relations, judge_parsed_plan, parse_allowed_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KNOWN = ("cage.t", "cage.u")
NEIGHBOURS = ("aes_encrypt", "uuid")
"""Functions that Spark's examples of others call."""

ASKED = """
SELECT a, b AS bb, count(*) c, sum(a) FILTER (WHERE a > 0) FROM cage.t WHERE a IN (1, 2) AND b LIKE 'x%' GROUP BY a, b
    HAVING count(*) > 0 ORDER BY 1 DESC LIMIT 3 OFFSET 0;
WITH x AS (SELECT * FROM cage.t), y(a, b) AS (SELECT a, b FROM cage.u) SELECT x.*, y.b FROM x LEFT JOIN y USING (a)
    QUALIFY row_number() OVER (ORDER BY x.a) = 1;
SELECT a, sum(a) OVER w, lag(a, 1) OVER w, avg(a) OVER (ORDER BY a ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM
    cage.t WINDOW w AS (PARTITION BY b ORDER BY a);
SELECT a, b, grouping(a), sum(a) FROM cage.t GROUP BY GROUPING SETS ((a), (a, b), ()) UNION ALL SELECT a, b, 0, 1 FROM
    cage.t GROUP BY CUBE (a, b);
SELECT a, p, x FROM cage.t LATERAL VIEW OUTER posexplode(c) e AS p, x INTERSECT SELECT 1, 0, 1 EXCEPT SELECT 2, 2, 2;
SELECT * FROM cage.t WHERE EXISTS (SELECT 1 FROM cage.u WHERE u.a = t.a) AND a = (SELECT max(a) FROM cage.u) AND (a,
    b) NOT IN (SELECT a, b FROM cage.u);
SELECT * FROM (SELECT a, b FROM cage.t) PIVOT (sum(a) FOR b IN ('x', 'y'));
SELECT max_by(b, a), min_by(b, a, 2), to_char(max(a), '999'), try_make_timestamp(2026, 1, 2, 3, 4, 5) FROM cage.t;
SELECT * FROM cage.u UNPIVOT (v FOR k IN (a)), LATERAL (SELECT 1 AS z), VALUES (1, 'a') AS w(n, m), range(3);
FROM cage.t |> WHERE a > 0 |> AGGREGATE sum(a) AS s GROUP BY b;
SELECT /*+ BROADCAST(u) */ DISTINCT CASE WHEN t.a > 1 THEN 'x' ELSE 'y' END, t.a::double, t.b || 'z', c[0], m['k'],
    st.f, d - INTERVAL 1 DAY, extract(year FROM d), if(t.a > 0, 1, 2), transform(c, x -> x + 1), date_trunc('day', d) FROM
    cage.t JOIN cage.u ON t.a = u.a;
SELECT max(struct(a, b)), collect_list(a), percentile_cont(0.5) WITHIN GROUP (ORDER BY a), mode(a), stddev(a),
    to_json(any_value(st)), trim(BOTH ' ' FROM max(b)) FROM cage.t;
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT sum(n) FROM r;
EXPLAIN SELECT * FROM cage.t;
DESCRIBE cage.t;
DESCRIBE QUERY SELECT a FROM cage.t
"""

REFUSED = {
    "EXECUTE IMMEDIATE 'SELECT * FROM cage.secret'": "UnresolvedExecuteImmediate",
    "EXPLAIN EXECUTE IMMEDIATE 'DROP VIEW cage.t'": "UnresolvedExecuteImmediate",
    "SELECT TRANSFORM(a) USING 'sh -c id' AS (x) FROM cage.t": "ScriptTransformation",
    "SELECT * FROM delta.`/x` VERSION AS OF 1": "RelationTimeTravel",
    "SELECT * FROM cage.t VERSION AS OF 1": "RelationTimeTravel",
    "SELECT * FROM delta.`/x`": "There is no table 'delta./x'",
    "SELECT * FROM delta.`/x@v1`": "There is no table",
    "SELECT * FROM cage.t WITH ('versionAsOf' = '0')": "with options",
    "SELECT * FROM cage.secret": "There is no table 'cage.secret'",
    "SELECT * FROM spark_catalog.cage.t": "There is no table",
    "SELECT * FROM hidden": "There is no table 'hidden'",
    "SELECT * FROM hidden WHERE EXISTS (WITH hidden AS (SELECT 1) SELECT 1 FROM hidden)": "There is no table 'hidden'",
    "WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a": "There is no table 'b'",
    "SELECT * FROM IDENTIFIER('cage.' || 'secret')": "PlanWithUnresolvedIdentifier",
    "SELECT IDENTIFIER('reflect')('java.lang.System', 'getenv')": "is not allowed here",
    "SELECT /* */ `reflect`('java.lang.System', 'getenv', 'HOME')": "The function reflect()",
    "SELECT java_method /**/ ('java.lang.System', 'getenv', 'HOME')": "The function java_method()",
    "SELECT system.builtin.reflect('java.lang.System', 'getenv', 'HOME')": "The function system.builtin.reflect()",
    "SELECT a FROM cage.t ORDER BY try_reflect('java.lang.System', 'getenv', 'HOME')": "The function try_reflect()",
    "SELECT transform(array(1), x -> uuid())": "The function uuid()",
    "SELECT input_file_name() FROM cage.t": "The function input_file_name()",
    "SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '/etc/passwd'))": "The function from_xml()",
    "SELECT * FROM table_changes_by_path('/x', 0)": "The function table_changes_by_path()",
    "SELECT * FROM cage.t LATERAL VIEW reflect('java.lang.System', 'exit') e AS x": "The function reflect()",
    "SELECT session_user": "CurrentUser",
    "/* */ DESCRIBE HISTORY delta.`/x`": "DescribeDeltaHistory",
    "-- why\nDESCRIBE DETAIL delta.`/x`": "DescribeDeltaDetailCommand",
    "DESCRIBE delta.`/x`": "There is no table 'delta./x'",
    "SHOW CREATE TABLE cage.t": "ShowCreateTable",
    "BEGIN DROP VIEW cage.t; END": "CompoundBody",
    "SET spark.sql.ansi.enabled = false": "SetCommand",
    "SELECT _metadata.file_path FROM cage.t": "_metadata",
    "WITH x AS (SELECT 1) INSERT INTO cage.t SELECT * FROM x": "InsertIntoStatement",
    "SELECT :x": "NamedParameter",
}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    own = spark.newSession()
    own.sql("CREATE SCHEMA IF NOT EXISTS cage")
    columns = (
        "1 AS a, 'x' AS b, array(1, 2) AS c, timestamp'2020-01-01 00:00:00' AS d, map('k', 1) AS m, named_struct('f', 1) AS st"
    )
    for view in ("t", "secret"):
        own.sql(f"CREATE OR REPLACE VIEW cage.{view} AS SELECT {columns}")
    own.sql("CREATE OR REPLACE VIEW cage.u AS SELECT 1 AS a, 'y' AS b")
    own.sql("SELECT 'nobody may see this' AS a").createOrReplaceTempView("hidden")
    return own


def ask(session: SparkSession, text: str) -> Any:
    query = parse_allowed_query(session, text)
    return analyse_query(session, query, check_query_relations(query, KNOWN))


def test_analytic_queries_pass(session: SparkSession) -> None:
    for text in ASKED.split(";\n"):
        ask(session, text)  # analysed; Spark runs what says how a query is done
    assert ask(session, ASKED.split(";\n")[-4]).collect()[0][0] == 6


def test_nothing_else_passes(session: SparkSession) -> None:
    for text, said in REFUSED.items():
        with pytest.raises(UsageError) as refused:
            ask(session, text)
        assert said in str(refused.value), (text, str(refused.value))
    assert session.conf.get("spark.sql.ansi.enabled") == "true" and session.catalog.tableExists("cage.t")


def test_what_analysis_makes_of_a_query_is_judged_again(session: SparkSession) -> None:
    """A name that may be read, which stands for something that may not: nobody but Sluice makes views, so this one is made on purpose."""
    query = parse_allowed_query(session, "SELECT a FROM hidden")
    with pytest.raises(UsageError, match="'hidden' may not be read here"):
        analyse_query(session, query, ["hidden"])
    with pytest.raises(UsageError, match=r"'cage\.u' may not be read here"):
        analyse_query(session, parse_allowed_query(session, "SELECT a FROM cage.u"), ["cage.t"])


def test_every_class_of_a_node_and_of_an_expression_is_refused_unless_it_is_listed(session: SparkSession) -> None:
    """An instance of each, made without its constructor, deep in a plan: only its class can be what refuses it."""
    jvm: Any = session._jvm
    plans, expressions = sql_refusals.concrete_classes()
    allowed = NODES | ASKING | LISTING
    assert len(plans) > 300 and len(expressions) > 600
    assert plans >= allowed and expressions >= EXPRESSIONS, "a class that this version has not"
    loader = session._jsparkSession.getClass().getClassLoader()
    field = jvm.java.lang.Class.forName("sun.misc.Unsafe").getDeclaredField("theUnsafe")
    field.setAccessible(True)
    unsafe = field.get(None)
    logical, expression = jvm.org.apache.spark.sql.catalyst.plans.logical, jvm.org.apache.spark.sql.catalyst.expressions

    def passes(name: str, within: Any) -> bool:
        try:
            judge_parsed_plan(session, within(unsafe.allocateInstance(jvm.java.lang.Class.forName(name, False, loader))))
        except UsageError as error:
            assert name.rpartition(".")[2].rstrip("$") in str(error)
            return False
        return True

    assert [name for name in sorted(plans - allowed) if passes(name, logical.Distinct)] == []
    code = {
        name
        for name in expressions
        if name.endswith(("CallMethodViaReflection", "ScalaUDF", "PythonUDF", "Invoke", "CurrentUser"))
    }
    assert len(code) >= 6
    assert [name for name in sorted(code) if passes(name, lambda one: logical.Filter(one, logical.OneRowRelation()))] == []
    assert not passes(min(code), lambda one: logical.Filter(expression.Not(one), logical.OneRowRelation()))


def test_every_function_is_refused_unless_it_is_listed(session: SparkSession) -> None:
    functions, of_tables = sql_refusals.function_names(session)
    assert len(functions) > 400 and set(functions) >= FUNCTIONS and set(of_tables) >= TABLE_FUNCTIONS
    for name in sorted(set(functions) - FUNCTIONS):
        with pytest.raises(UsageError, match="is not allowed here"):
            parse_allowed_query(session, f"SELECT a FROM cage.t WHERE `{name}`()")
    for name in sorted(set(of_tables) - TABLE_FUNCTIONS):
        with pytest.raises(UsageError, match="is not allowed here"):
            parse_allowed_query(session, f"SELECT * FROM {name}()")
    parse_allowed_query(session, f"SELECT {', '.join(f'`{name}`()' for name in sorted(FUNCTIONS))}")


def test_the_page_lists_what_is_refused(session: SparkSession) -> None:
    assert sql_refusals.written_part() == sql_refusals.page_part(session), "python -m tests.sql_refusals writes it"


@pytest.mark.slow
def test_the_examples_of_every_function_that_is_listed_pass(session: SparkSession) -> None:
    """The examples of Spark's own documentation, except those that also call a function that is not listed."""
    jvm: Any = session._jvm
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    refused, asked = [], 0
    for name in sorted(FUNCTIONS):
        info = registry.lookupFunction(jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)).get()
        for example in re.findall(r"^\s*> (.*?);\s*$", info.getExamples().replace("_FUNC_", name), re.MULTILINE):
            try:
                ask(session, example)
            except UsageError as error:
                refused += [(name, str(error).split(". ")[0])] if "not allowed here" in str(error) else []
            asked += 1
    assert asked > 700
    assert {said for _, said in refused} <= {f"The function {one}() is not allowed here" for one in NEIGHBOURS}, refused
