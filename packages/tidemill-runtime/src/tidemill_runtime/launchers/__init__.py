"""Ways to start the user's script: one launcher per kind of distribution, behind one interface."""

from tidemill_runtime.launchers.base import Launcher, Script
from tidemill_runtime.launchers.parameter_server import ParameterServerLauncher
from tidemill_runtime.launchers.python import ColdLauncher, command_of
from tidemill_runtime.launchers.selection import launcher_for

__all__ = ["ColdLauncher", "Launcher", "ParameterServerLauncher", "Script", "command_of", "launcher_for"]
