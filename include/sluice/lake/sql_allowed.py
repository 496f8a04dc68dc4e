"""What a query of `sluice sql` may consist of: plan nodes, expressions and functions of Spark. All others are refused.

These read the tables that are named and compute with their values. None of them runs code, reads a file, asks about the machine, or, except
for the clock, gives another result when it is asked again.
"""

from __future__ import annotations


def _qualified_class_names(package: str, names: str) -> frozenset[str]:
    return frozenset(f"org.apache.spark.sql.{package}.{name}" for name in names.split())


def _split_words(names: str) -> frozenset[str]:
    return frozenset(names.split())


NODES = (
    _qualified_class_names(
        "catalyst.plans.logical",
        """Aggregate AsOfJoin CTERelationDef CTERelationRef DataFrameDropColumns Distinct Except Expand Filter Generate GlobalLimit Intersect
        Join LateralJoin LimitAll LocalLimit LocalRelation Offset OneRowRelation Pivot Project Range RebalancePartitions Repartition
        RepartitionByExpression ResolvedHint Sample Sort SubqueryAlias Union UnionLoop UnionLoopRef Unpivot UnresolvedHint UnresolvedWith View
        Window WithCTE WithWindowDefinition""",
    )
    | _qualified_class_names(
        "catalyst.analysis",
        """UnresolvedHaving UnresolvedInlineTable UnresolvedQualify UnresolvedRelation UnresolvedSubqueryColumnAliases UnresolvedTVFAliases
        UnresolvedTableValuedFunction""",
    )
    | _qualified_class_names("catalyst.expressions", "PipeOperator")
)
"""Nodes of queries, before and after analysis."""

ASKING = (
    _qualified_class_names("catalyst.plans.logical", "DescribeRelation DescribeColumn ShowColumns")
    | _qualified_class_names("catalyst.analysis", "UnresolvedTableOrView")
    | _qualified_class_names("execution.command", "ExplainCommand DescribeQueryCommand")
)
"""Nodes of statements that explain a query or describe a table that may be read."""

LISTING = _qualified_class_names("catalyst.plans.logical", "ShowTables") | _qualified_class_names(
    "catalyst.analysis", "UnresolvedNamespace CurrentNamespace$"
)
"""Nodes of statements that list tables. They name no table, so roles may not use them."""

EXPRESSIONS = (
    _qualified_class_names(
        "catalyst.analysis",
        """UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator UnresolvedOrdinal
        UnresolvedPipeAggregateOrdinal UnresolvedRegex UnresolvedStar UnresolvedStarExceptOrReplace UnresolvedStarWithColumns
        UnresolvedStarWithColumnsRenames MultiAlias""",
    )
    | _qualified_class_names(
        "catalyst.expressions",
        """Alias AttributeReference Ceil Collate CommonExpressionDef CommonExpressionRef Contains Cube CurrentRow$ DateAddInterval
        DateAddYMInterval DatetimeSub DivideDTInterval DivideInterval DivideYMInterval EndsWith Exists Explode ExtractANSIIntervalDays
        ExtractANSIIntervalHours ExtractANSIIntervalMinutes ExtractANSIIntervalMonths ExtractANSIIntervalSeconds ExtractANSIIntervalYears
        ExtractIntervalDays ExtractIntervalHours ExtractIntervalMinutes ExtractIntervalMonths ExtractIntervalSeconds ExtractIntervalYears Floor
        GeneratorOuter GetArrayItem GetArrayStructFields GetMapValue GetStructField GetTimestamp GroupingSets Hour InSubquery Inline
        KnownNotNull KnownNullable LambdaFunction LateralColumnAliasReference LateralSubquery LikeAll LikeAny ListQuery Literal MakeTimestamp
        MakeTimestampNTZ Mask Minute MultiplyDTInterval MultiplyInterval MultiplyYMInterval NamedArgumentExpression NamedLambdaVariable
        NamePlaceholder$ NotLikeAll NotLikeAny OuterReference PipeExpression PosExplode PreciseTimestampConversion ResolvedCollation Rollup
        RoundCeil RoundFloor ScalarSubquery Second SecondWithFraction SecondsOfTime SecondsOfTimeWithFraction HoursOfTime MinutesOfTime
        SemiStructuredExtract SortOrder SpecifiedWindowFrame StartsWith StringLPad StringRPad BinaryPad StringDecode SubtractDates SubtractTimes
        SubtractTimestamps TimeAddInterval TimestampAdd TimestampAddInterval TimestampAddYMInterval TimestampDiff
        UnboundedFollowing$ UnboundedPreceding$ UnresolvedCollation UnresolvedNamedLambdaVariable UnresolvedWindowExpression UnspecifiedFrame$
        WindowExpression WindowSpecDefinition With YearOfWeek
        BinaryPredicate CurrentTimeZone MakeTimestampFromDateTime ToCharacter TryEval TryMakeTimestamp TryMakeTimestampFromDateTime""",
    )
    | _qualified_class_names(
        "catalyst.expressions.aggregate",
        "AggregateExpression MaxBy MaxMinByK MinBy Mode PercentileCont PercentileDisc PivotFirst",
    )
    | _qualified_class_names("catalyst.expressions.variant", "ParseJson VariantExplode VariantGet")
)
"""Expressions that hold queries together, and those that operators and functions with another class name become. Function classes are added."""

FUNCTIONS = _split_words("""
    ! % & * + - / < << <= <=> = == > >= >> >>> ^ and between div ilike in isnotnull isnull like not or regexp rlike | ~ when

    any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bool_and bool_or collect_list collect_set corr
    count count_if covar_pop covar_samp every first first_value grouping grouping_id histogram_numeric kurtosis last last_value listagg max
    max_by mean median min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum try_avg try_sum
    var_pop var_samp variance

    cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number

    array array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join array_max array_min
    array_position array_prepend array_remove array_repeat array_size array_union arrays_overlap arrays_zip cardinality concat element_at
    flatten get reverse sequence size slice sort_array try_element_at
    aggregate array_sort exists filter forall map_filter map_zip_with reduce transform transform_keys transform_values zip_with
    map map_concat map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values str_to_map named_struct struct
    explode explode_outer inline inline_outer posexplode posexplode_outer stack

    bit_count bit_get getbit shiftleft shiftright shiftrightunsigned
    coalesce equal_null if ifnull isnan nanvl nullif nullifzero nvl nvl2 zeroifnull typeof
    bigint binary boolean cast date decimal double float int smallint string time timestamp tinyint

    add_months convert_timezone curdate current_date current_time current_timestamp date_add date_diff date_format date_from_unix_date
    date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear extract from_unixtime
    from_utc_timestamp hour last_day localtimestamp make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz
    make_timestamp_ntz make_ym_interval minute month monthname months_between next_day now quarter second session_window time_diff time_trunc
    timestamp_micros timestamp_millis timestamp_seconds to_date to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
    to_utc_timestamp trunc try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_to_date try_to_time
    try_to_timestamp unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday weekofyear window window_time year

    abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees e exp expm1 factorial floor
    greatest hex hypot least ln log log10 log1p log2 mod negative pi pmod positive pow power radians rint round sec sign signum sin sinh sqrt
    tan tanh try_add try_divide try_mod try_multiply try_subtract unhex width_bucket
    crc32 hash md5 sha sha1 sha2 xxhash64

    ascii base64 bit_length btrim char char_length character_length chr collate collation concat_ws contains decode elt encode endswith
    find_in_set format_number format_string initcap instr is_valid_utf8 lcase left len length levenshtein locate lower lpad ltrim luhn_check
    make_valid_utf8 mask octet_length overlay position printf quote regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like
    regexp_replace regexp_substr repeat replace right rpad rtrim sentences soundex space split split_part startswith substr substring
    substring_index to_binary to_char to_number to_varchar translate trim try_to_binary try_to_number try_validate_utf8 ucase unbase64 upper
    validate_utf8 parse_url try_parse_url try_url_decode url_decode url_encode

    from_csv from_json get_json_object json_array_length json_object_keys json_tuple schema_of_csv schema_of_json to_csv to_json
    is_valid_variant is_variant_null parse_json schema_of_variant schema_of_variant_agg to_variant_object try_parse_json try_variant_get
    variant_get
    """)
"""Functions by their names in Spark. Left out: those that are random, tell about the machine, read files or load classes (Avro, Protobuf, XML)."""

TABLE_FUNCTIONS = _split_words("""explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range stack variant_explode
    variant_explode_outer""")
"""Functions in FROM that make rows from their arguments alone."""
