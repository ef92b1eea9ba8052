"""Job files that start a configuration of a plan on SLURM, Kubernetes, SkyPilot, Vertex AI, or by hand."""
