"""Dead letters sent again because a person said so: through the pipeline, without a client."""
