"""Stand-ins for the outside world, used by the tests: a disk that forgets and a clock that is told the time."""
