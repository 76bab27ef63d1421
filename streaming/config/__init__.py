"""The configuration of the whole service, in one file."""

from streaming.config.errors import ConfigError as ConfigError
from streaming.config.errors import ConfigErrors as ConfigErrors
from streaming.config.load import load_config as load_config
from streaming.config.model import Config as Config
from streaming.config.model import to_settings as to_settings
