"""autoload_to_table: the engine's ingestion for anybody's Spark session, without a pipeline, a lake or settings."""
