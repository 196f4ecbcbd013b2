"""The configurations that come with deeprc, one YAML file each."""
