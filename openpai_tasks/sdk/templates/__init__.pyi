from .catalog import build_request as build_request
from .catalog import fill as fill
from .catalog import find_template as find_template
from .catalog import list_templates as list_templates
from .catalog import packaged_folder as packaged_folder
from .catalog import write_job_file as write_job_file
from .schemas import job_schema as job_schema
from .schemas import settings_schema as settings_schema
