"""Takes apart SQL texts of declarations, transforms and schemas, without Spark."""
