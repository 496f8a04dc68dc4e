"""The eight tables of TPC-H: their columns and keys, which all contestants share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KeptTable:
    """A table that is kept from a feed of changes. columns: as DDL."""

    name: str
    keys: tuple[str, ...]
    columns: str

    @property
    def feed(self) -> str:
        """The name of its feed, and of the folder that its files are delivered into."""
        return f"{self.name}_feed"

    @property
    def column_names(self) -> tuple[str, ...]:
        """Its columns by name."""
        return tuple(line.split()[0] for line in self.columns.strip().splitlines())


FEED_COLUMNS = "change STRING, changed INT"
"""What a feed's rows have beside the table's columns: 'upsert' or 'delete', and the number of the delivery, which puts changes in order."""

TABLES = (
    KeptTable(
        "region",
        ("r_regionkey",),
        """
        r_regionkey BIGINT,
        r_name STRING,
        r_comment STRING
        """,
    ),
    KeptTable(
        "nation",
        ("n_nationkey",),
        """
        n_nationkey BIGINT,
        n_name STRING,
        n_regionkey BIGINT,
        n_comment STRING
        """,
    ),
    KeptTable(
        "supplier",
        ("s_suppkey",),
        """
        s_suppkey BIGINT,
        s_name STRING,
        s_address STRING,
        s_nationkey BIGINT,
        s_phone STRING,
        s_acctbal DECIMAL(15, 2),
        s_comment STRING
        """,
    ),
    KeptTable(
        "part",
        ("p_partkey",),
        """
        p_partkey BIGINT,
        p_name STRING,
        p_mfgr STRING,
        p_brand STRING,
        p_type STRING,
        p_size INT,
        p_container STRING,
        p_retailprice DECIMAL(15, 2),
        p_comment STRING
        """,
    ),
    KeptTable(
        "partsupp",
        ("ps_partkey", "ps_suppkey"),
        """
        ps_partkey BIGINT,
        ps_suppkey BIGINT,
        ps_availqty INT,
        ps_supplycost DECIMAL(15, 2),
        ps_comment STRING
        """,
    ),
    KeptTable(
        "customer",
        ("c_custkey",),
        """
        c_custkey BIGINT,
        c_name STRING,
        c_address STRING,
        c_nationkey BIGINT,
        c_phone STRING,
        c_acctbal DECIMAL(15, 2),
        c_mktsegment STRING,
        c_comment STRING
        """,
    ),
    KeptTable(
        "orders",
        ("o_orderkey",),
        """
        o_orderkey BIGINT,
        o_custkey BIGINT,
        o_orderstatus STRING,
        o_totalprice DECIMAL(15, 2),
        o_orderdate DATE,
        o_orderpriority STRING,
        o_clerk STRING,
        o_shippriority INT,
        o_comment STRING
        """,
    ),
    KeptTable(
        "lineitem",
        ("l_orderkey", "l_linenumber"),
        """
        l_orderkey BIGINT,
        l_partkey BIGINT,
        l_suppkey BIGINT,
        l_linenumber INT,
        l_quantity DECIMAL(15, 2),
        l_extendedprice DECIMAL(15, 2),
        l_discount DECIMAL(15, 2),
        l_tax DECIMAL(15, 2),
        l_returnflag STRING,
        l_linestatus STRING,
        l_shipdate DATE,
        l_commitdate DATE,
        l_receiptdate DATE,
        l_shipinstruct STRING,
        l_shipmode STRING,
        l_comment STRING
        """,
    ),
)
