"""The 22 queries of TPC-H as views: without ORDER BY and LIMIT, with the parameters of the specification's validation runs.

A view has keys. The answers of one row (6, 14, 17, 19) get one, the column `answer`. The texts are understood by Spark and by DuckDB.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from decimal import Decimal

SCALE, CHOSEN = "TPCH_SCALE", "TPCH_QUERIES"
"""Environment variables: the scale, on which a parameter of query 11 depends, and the names of the queries of this run."""


@dataclass(frozen=True)
class Query:
    """A query as a view of the tables that it reads."""

    name: str
    title: str
    keys: tuple[str, ...]
    reads: tuple[str, ...]
    sql: str


def make_fraction(scale: str) -> str:
    """The parameter of query 11: 0.0001 at scale 1, the less the larger the scale is."""
    return f"{(Decimal('0.0001') / Decimal(scale)).normalize():f}"


ALL_QUERIES = (
    Query(
        "q01",
        "Pricing summary report",
        ("l_returnflag", "l_linestatus"),
        ("lineitem",),
        """
        SELECT
            l_returnflag,
            l_linestatus,
            sum(l_quantity) AS sum_qty,
            sum(l_extendedprice) AS sum_base_price,
            sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
            sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
            avg(l_quantity) AS avg_qty,
            avg(l_extendedprice) AS avg_price,
            avg(l_discount) AS avg_disc,
            count(*) AS count_order
        FROM lineitem
        WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY
        GROUP BY l_returnflag, l_linestatus
        """,
    ),
    Query(
        "q02",
        "Minimum cost supplier",
        ("p_partkey", "s_name"),
        ("part", "supplier", "partsupp", "nation", "region"),
        """
        WITH offers AS (
            SELECT ps_partkey, ps_supplycost, s_acctbal, s_name, n_name, s_address, s_phone, s_comment
            FROM partsupp
            JOIN supplier ON s_suppkey = ps_suppkey
            JOIN nation ON n_nationkey = s_nationkey
            JOIN region ON r_regionkey = n_regionkey
            WHERE r_name = 'EUROPE'
        ),
        cheapest AS (
            SELECT ps_partkey AS of_part, min(ps_supplycost) AS lowest_cost
            FROM offers
            GROUP BY ps_partkey
        )
        SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        FROM part
        JOIN offers ON ps_partkey = p_partkey
        JOIN cheapest ON of_part = p_partkey AND lowest_cost = ps_supplycost
        WHERE p_size = 15 AND p_type LIKE '%BRASS'
        """,
    ),
    Query(
        "q03",
        "Shipping priority",
        ("l_orderkey",),
        ("customer", "orders", "lineitem"),
        """
        SELECT
            l_orderkey,
            sum(l_extendedprice * (1 - l_discount)) AS revenue,
            o_orderdate,
            o_shippriority
        FROM customer
        JOIN orders ON o_custkey = c_custkey
        JOIN lineitem ON l_orderkey = o_orderkey
        WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority
        """,
    ),
    Query(
        "q04",
        "Order priority checking",
        ("o_orderpriority",),
        ("orders", "lineitem"),
        """
        SELECT o_orderpriority, count(*) AS order_count
        FROM orders
        WHERE o_orderdate >= DATE '1993-07-01'
            AND o_orderdate < DATE '1993-10-01'
            AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority
        """,
    ),
    Query(
        "q05",
        "Local supplier volume",
        ("n_name",),
        ("customer", "orders", "lineitem", "supplier", "nation", "region"),
        """
        SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer
        JOIN orders ON o_custkey = c_custkey
        JOIN lineitem ON l_orderkey = o_orderkey
        JOIN supplier ON s_suppkey = l_suppkey AND s_nationkey = c_nationkey
        JOIN nation ON n_nationkey = s_nationkey
        JOIN region ON r_regionkey = n_regionkey
        WHERE r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
        GROUP BY n_name
        """,
    ),
    Query(
        "q06",
        "Forecasting revenue change",
        ("answer",),
        ("lineitem",),
        """
        SELECT 'revenue' AS answer, sum(l_extendedprice * l_discount) AS revenue
        FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01'
            AND l_shipdate < DATE '1995-01-01'
            AND l_discount BETWEEN 0.05 AND 0.07
            AND l_quantity < 24
        """,
    ),
    Query(
        "q07",
        "Volume shipping",
        ("supp_nation", "cust_nation", "l_year"),
        ("supplier", "lineitem", "orders", "customer", "nation"),
        """
        SELECT
            seller.n_name AS supp_nation,
            buyer.n_name AS cust_nation,
            extract(YEAR FROM l_shipdate) AS l_year,
            sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM lineitem
        JOIN supplier ON s_suppkey = l_suppkey
        JOIN nation AS seller ON seller.n_nationkey = s_nationkey
        JOIN orders ON o_orderkey = l_orderkey
        JOIN customer ON c_custkey = o_custkey
        JOIN nation AS buyer ON buyer.n_nationkey = c_nationkey
        WHERE l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
            AND (
                (seller.n_name = 'FRANCE' AND buyer.n_name = 'GERMANY')
                OR (seller.n_name = 'GERMANY' AND buyer.n_name = 'FRANCE')
            )
        GROUP BY seller.n_name, buyer.n_name, extract(YEAR FROM l_shipdate)
        """,
    ),
    Query(
        "q08",
        "National market share",
        ("o_year",),
        ("part", "supplier", "lineitem", "orders", "customer", "nation", "region"),
        """
        WITH sold AS (
            SELECT
                extract(YEAR FROM o_orderdate) AS o_year,
                l_extendedprice * (1 - l_discount) AS volume,
                seller.n_name AS seller
            FROM lineitem
            JOIN part ON p_partkey = l_partkey
            JOIN supplier ON s_suppkey = l_suppkey
            JOIN nation AS seller ON seller.n_nationkey = s_nationkey
            JOIN orders ON o_orderkey = l_orderkey
            JOIN customer ON c_custkey = o_custkey
            JOIN nation AS buyer ON buyer.n_nationkey = c_nationkey
            JOIN region ON r_regionkey = buyer.n_regionkey
            WHERE r_name = 'AMERICA'
                AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
                AND p_type = 'ECONOMY ANODIZED STEEL'
        )
        SELECT o_year, sum(CASE WHEN seller = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) AS mkt_share
        FROM sold
        GROUP BY o_year
        """,
    ),
    Query(
        "q09",
        "Product type profit measure",
        ("nation", "o_year"),
        ("part", "supplier", "lineitem", "partsupp", "orders", "nation"),
        """
        SELECT
            n_name AS nation,
            extract(YEAR FROM o_orderdate) AS o_year,
            sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity) AS sum_profit
        FROM lineitem
        JOIN part ON p_partkey = l_partkey
        JOIN supplier ON s_suppkey = l_suppkey
        JOIN partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey
        JOIN orders ON o_orderkey = l_orderkey
        JOIN nation ON n_nationkey = s_nationkey
        WHERE p_name LIKE '%green%'
        GROUP BY n_name, extract(YEAR FROM o_orderdate)
        """,
    ),
    Query(
        "q10",
        "Returned item reporting",
        ("c_custkey",),
        ("customer", "orders", "lineitem", "nation"),
        """
        SELECT
            c_custkey,
            c_name,
            sum(l_extendedprice * (1 - l_discount)) AS revenue,
            c_acctbal,
            n_name,
            c_address,
            c_phone,
            c_comment
        FROM customer
        JOIN orders ON o_custkey = c_custkey
        JOIN lineitem ON l_orderkey = o_orderkey
        JOIN nation ON n_nationkey = c_nationkey
        WHERE o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01' AND l_returnflag = 'R'
        GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        """,
    ),
    Query(
        "q11",
        "Important stock identification",
        ("ps_partkey",),
        ("partsupp", "supplier", "nation"),
        f"""
        WITH stock AS (
            SELECT ps_partkey, ps_supplycost * ps_availqty AS worth
            FROM partsupp
            JOIN supplier ON s_suppkey = ps_suppkey
            JOIN nation ON n_nationkey = s_nationkey
            WHERE n_name = 'GERMANY'
        )
        SELECT ps_partkey, sum(worth) AS value
        FROM stock
        GROUP BY ps_partkey
        HAVING sum(worth) > (SELECT sum(worth) * {make_fraction(os.environ.get(SCALE, "1"))} FROM stock)
        """,
    ),
    Query(
        "q12",
        "Shipping modes and order priority",
        ("l_shipmode",),
        ("orders", "lineitem"),
        """
        SELECT
            l_shipmode,
            sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS high_line_count,
            sum(CASE WHEN o_orderpriority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS low_line_count
        FROM orders
        JOIN lineitem ON l_orderkey = o_orderkey
        WHERE l_shipmode IN ('MAIL', 'SHIP')
            AND l_commitdate < l_receiptdate
            AND l_shipdate < l_commitdate
            AND l_receiptdate >= DATE '1994-01-01'
            AND l_receiptdate < DATE '1995-01-01'
        GROUP BY l_shipmode
        """,
    ),
    Query(
        "q13",
        "Customer distribution",
        ("c_count",),
        ("customer", "orders"),
        """
        WITH counted AS (
            SELECT c_custkey, count(o_orderkey) AS c_count
            FROM customer
            LEFT JOIN orders ON o_custkey = c_custkey AND o_comment NOT LIKE '%special%requests%'
            GROUP BY c_custkey
        )
        SELECT c_count, count(*) AS custdist
        FROM counted
        GROUP BY c_count
        """,
    ),
    Query(
        "q14",
        "Promotion effect",
        ("answer",),
        ("lineitem", "part"),
        """
        SELECT
            'promo_revenue' AS answer,
            100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
                / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue
        FROM lineitem
        JOIN part ON p_partkey = l_partkey
        WHERE l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'
        """,
    ),
    Query(
        "q15",
        "Top supplier",
        ("s_suppkey",),
        ("lineitem", "supplier"),
        """
        WITH revenue AS (
            SELECT l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total_revenue
            FROM lineitem
            WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-04-01'
            GROUP BY l_suppkey
        )
        SELECT s_suppkey, s_name, s_address, s_phone, total_revenue
        FROM supplier
        JOIN revenue ON supplier_no = s_suppkey
        WHERE total_revenue = (SELECT max(total_revenue) FROM revenue)
        """,
    ),
    Query(
        "q16",
        "Parts/supplier relationship",
        ("p_brand", "p_type", "p_size"),
        ("partsupp", "part", "supplier"),
        """
        SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS supplier_cnt
        FROM partsupp
        JOIN part ON p_partkey = ps_partkey
        WHERE p_brand <> 'Brand#45'
            AND p_type NOT LIKE 'MEDIUM POLISHED%'
            AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
            AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
        GROUP BY p_brand, p_type, p_size
        """,
    ),
    Query(
        "q17",
        "Small-quantity-order revenue",
        ("answer",),
        ("lineitem", "part"),
        """
        WITH usual AS (
            SELECT l_partkey AS of_part, 0.2 * avg(l_quantity) AS little
            FROM lineitem
            GROUP BY l_partkey
        )
        SELECT 'avg_yearly' AS answer, sum(l_extendedprice) / 7.0 AS avg_yearly
        FROM lineitem
        JOIN part ON p_partkey = l_partkey
        JOIN usual ON of_part = l_partkey
        WHERE p_brand = 'Brand#23' AND p_container = 'MED BOX' AND l_quantity < little
        """,
    ),
    Query(
        "q18",
        "Large volume customer",
        ("o_orderkey",),
        ("customer", "orders", "lineitem"),
        """
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
        FROM customer
        JOIN orders ON o_custkey = c_custkey
        JOIN lineitem ON l_orderkey = o_orderkey
        WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        """,
    ),
    Query(
        "q19",
        "Discounted revenue",
        ("answer",),
        ("lineitem", "part"),
        """
        SELECT 'revenue' AS answer, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM lineitem
        JOIN part ON p_partkey = l_partkey
        WHERE l_shipmode IN ('AIR', 'AIR REG')
            AND l_shipinstruct = 'DELIVER IN PERSON'
            AND (
                (
                    p_brand = 'Brand#12'
                    AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
                    AND l_quantity BETWEEN 1 AND 11
                    AND p_size BETWEEN 1 AND 5
                )
                OR (
                    p_brand = 'Brand#23'
                    AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
                    AND l_quantity BETWEEN 10 AND 20
                    AND p_size BETWEEN 1 AND 10
                )
                OR (
                    p_brand = 'Brand#34'
                    AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
                    AND l_quantity BETWEEN 20 AND 30
                    AND p_size BETWEEN 1 AND 15
                )
            )
        """,
    ),
    Query(
        "q20",
        "Potential part promotion",
        ("s_name",),
        ("supplier", "nation", "partsupp", "part", "lineitem"),
        """
        WITH shipped AS (
            SELECT l_partkey, l_suppkey, 0.5 * sum(l_quantity) AS half_a_year
            FROM lineitem
            WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
            GROUP BY l_partkey, l_suppkey
        )
        SELECT s_name, s_address
        FROM supplier
        JOIN nation ON n_nationkey = s_nationkey
        WHERE n_name = 'CANADA'
            AND s_suppkey IN (
                SELECT ps_suppkey
                FROM partsupp
                JOIN shipped ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey
                WHERE ps_availqty > half_a_year
                    AND ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%')
            )
        """,
    ),
    Query(
        "q21",
        "Suppliers who kept orders waiting",
        ("s_name",),
        ("supplier", "lineitem", "orders", "nation"),
        """
        SELECT s_name, count(*) AS numwait
        FROM supplier
        JOIN lineitem AS late ON late.l_suppkey = s_suppkey
        JOIN orders ON o_orderkey = late.l_orderkey
        JOIN nation ON n_nationkey = s_nationkey
        WHERE o_orderstatus = 'F'
            AND late.l_receiptdate > late.l_commitdate
            AND EXISTS (
                SELECT * FROM lineitem AS another
                WHERE another.l_orderkey = late.l_orderkey AND another.l_suppkey <> late.l_suppkey
            )
            AND NOT EXISTS (
                SELECT * FROM lineitem AS another
                WHERE another.l_orderkey = late.l_orderkey
                    AND another.l_suppkey <> late.l_suppkey
                    AND another.l_receiptdate > another.l_commitdate
            )
            AND n_name = 'SAUDI ARABIA'
        GROUP BY s_name
        """,
    ),
    Query(
        "q22",
        "Global sales opportunity",
        ("cntrycode",),
        ("customer", "orders"),
        """
        WITH candidates AS (
            SELECT c_custkey, c_acctbal, substring(c_phone, 1, 2) AS cntrycode
            FROM customer
            WHERE substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17')
        )
        SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal
        FROM candidates
        WHERE c_acctbal > (SELECT avg(c_acctbal) FROM candidates WHERE c_acctbal > 0.00)
            AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey)
        GROUP BY cntrycode
        """,
    ),
)


def list_queries() -> list[Query]:
    """The queries that this run is about, by the environment's TPCH_QUERIES: names with blanks between; all if it is not set."""
    names = os.environ.get(CHOSEN, "").split()
    return [query for query in ALL_QUERIES if not names or query.name in names]
