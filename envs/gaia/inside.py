"""Runs inside the sandbox: takes the limits on, then becomes the program. Never imported; read as text.

Arguments: the program's file, the name it shows, 1 to print the value of a last expression, its directory, limits
as ``RLIMIT_X=value,...``. Only built-in modules are imported, because this is most of what a short run costs.
"""

import _sitebuiltins
import builtins
import resource
import sys

# Without the site module, which looks for packages where there are none, two things are missing that people use.
for _exit in ("exit", "quit"):
    setattr(builtins, _exit, _sitebuiltins.Quitter(_exit, "Ctrl-D (i.e. EOF)"))
_path, _shown, _echo, _directory, _limits = sys.argv[1:]
for _pair in _limits.split(","):
    _name, _value = _pair.split("=")
    _kind = getattr(resource, _name)
    _hard = resource.getrlimit(_kind)[1]
    _limit = int(_value) if _hard == resource.RLIM_INFINITY else min(int(_value), _hard)
    resource.setrlimit(_kind, (_limit, _limit))
with open(_path, "rb") as _file:
    _source = _file.read()
sys.argv = [_shown]
sys.path.insert(0, _directory)
_keep, _main = sys.modules["__main__"], type(sys)("__main__")
_main.__file__ = _shown
sys.modules["__main__"] = _main


def _start():
    import _ast

    tree = compile(_source, _shown, "exec", _ast.PyCF_ONLY_AST)
    last = tree.body.pop() if _echo == "1" and tree.body and isinstance(tree.body[-1], _ast.Expr) else None
    exec(compile(tree, _shown, "exec"), _main.__dict__)
    if last is not None:
        value = eval(compile(_ast.Expression(last.value), _shown, "eval"), _main.__dict__)
        if value is not None:
            print(repr(value))


try:
    _start()
except SystemExit:
    raise
except BaseException as _error:
    import traceback

    _trace = _error.__traceback__
    while _trace is not None and _trace.tb_frame.f_globals is _keep.__dict__:
        _trace = _trace.tb_next
    sys.stdout.flush()
    traceback.print_exception(type(_error), _error, _trace, limit=-12)
    sys.exit(1)
