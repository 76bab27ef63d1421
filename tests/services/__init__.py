"""The real services that tests run against, each started as a local process or a container on free ports."""
