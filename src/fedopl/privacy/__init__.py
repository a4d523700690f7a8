"""The arithmetic of differential privacy: accounting, exact noise and its source."""
