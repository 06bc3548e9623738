from .grid import parse_points as parse_points
from .plan import check_sweep as check_sweep
from .plan import describe_progress as describe_progress
from .plan import plan_sweep as plan_sweep
from .results import gather_results as gather_results
from .running import SweepRun as SweepRun
