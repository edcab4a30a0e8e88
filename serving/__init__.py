"""The predictor: keeps the assigned versions loaded, answers over HTTP, and takes events and labels in."""
