"""From the files of a data directory to the engine's state, and the frames to write before requests are served."""
