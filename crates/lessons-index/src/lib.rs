//! An index of the lessons that agents learned, over one JSON Lines file.
