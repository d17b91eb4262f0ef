"""From the files of a data directory to the state they stand for, and what is written before anybody is served."""
