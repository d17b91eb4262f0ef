"""The Spark data source `topics`: batch, stream and write, on the Python Data Source API of PySpark 4.2 and later."""
