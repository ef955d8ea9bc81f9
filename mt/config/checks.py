"""What a setting must hold, said with its key, its value and the rule."""

import math


def require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def in_range(owner: str, name: str, value: float, low: float, high: float = math.inf) -> None:
    rule = f"at least {low}" if math.isinf(high) else f"between {low} and {high}"
    require(low <= value <= high, f"{owner}.{name}={value}: must be {rule}")
