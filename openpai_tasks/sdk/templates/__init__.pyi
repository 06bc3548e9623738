from .catalog import find_template as find_template
from .catalog import list_templates as list_templates
from .catalog import packaged_folder as packaged_folder
from .catalog import parse_template_parameters as parse_template_parameters
from .catalog import write_job_file as write_job_file
from .filling import request_from_flags as request_from_flags
from .schemas import job_schema as job_schema
from .schemas import settings_schema as settings_schema
