"""streamd: a streaming video analytics daemon. Cameras and files in, classification results in Redis out."""

__version__ = "0.1.0"
