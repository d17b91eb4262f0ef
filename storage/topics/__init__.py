"""Operations on topics and their partitions: create, change, delete, expire."""
