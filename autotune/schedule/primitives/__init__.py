"""The primitives by what they change: loops, how loops run, hints, storage, place, dataflow, layout."""
