"""The export job: files in date partitions, and a chain of manifests that says which of them count."""
