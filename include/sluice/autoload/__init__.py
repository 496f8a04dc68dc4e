"""autoload_to_table: the engine's ingestion in any Spark session, without a pipeline, a lake or settings."""
