"""Programs that each use one client library in the same way; they run where only that library is installed."""
