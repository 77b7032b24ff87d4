"""The tool that every machine has: arithmetic, without `eval`.

Owns: numbers and operators, bounded in size.
Does not own: anything else that a program could do (the tool `python`).
"""

import ast
import operator
from collections.abc import Callable
from typing import Any

MAX_BITS = 4096
"""of a number on the way; a power may not take the machine's memory"""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def calculator(expression: str) -> str:
    """Compute an arithmetic expression.

    expression: numbers with + - * / // % ** and parentheses
    """
    if len(expression) > 500:
        raise ValueError("the expression is longer than 500 characters")
    value = _value(ast.parse(expression.strip(), mode="eval").body)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and _bits(left) * abs(right) > MAX_BITS:
            raise ValueError("the power is too large")
        value = _BINARY[type(node.op)](left, right)
        if isinstance(value, complex) or _bits(value) > MAX_BITS:
            raise ValueError("the result is too large, or no real number")
        return value
    raise ValueError("only numbers, + - * / // % ** and parentheses")


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 64
