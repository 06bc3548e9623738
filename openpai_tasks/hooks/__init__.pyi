from .delivery import DeliveryFailed as DeliveryFailed
from .delivery import deliver as deliver
from .delivery import notify_desktop as notify_desktop
from .hook import HEADER as HEADER
from .hook import describe_all as describe_all
from .hook import looks_like_hook as looks_like_hook
from .hook import parse_all as parse_all
