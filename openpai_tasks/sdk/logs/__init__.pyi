from .lines import TextLines as TextLines
from .lines import read_lines as read_lines
from .output import LogChoice as LogChoice
from .output import choose_stream as choose_stream
from .output import output_steps as output_steps
from .output import read_output as read_output
from .structured import parse_filter as parse_filter
from .structured import read_structured as read_structured
