"""engine_wall.py LIBCHDB: statements as a project's connection runs them, without the gate before it.

Works in an engine's DIR/empty, the engine being stopped. Reads a JSON list of statements, prints a JSON list of
[error, text]. For test_engine_isolation.py: what the engine's own rights hold back.
"""
import ctypes
import json
import sys

PREPARE = ["SET log_comment = 'mine', max_execution_time = 2, max_memory_usage = 536870912, max_threads = 2, "
           "use_query_condition_cache = 0, implicit_select = 0, readonly = 1", "SET ROLE NONE", "USE q"]


def main():
    lib = ctypes.CDLL(sys.argv[1])
    lib.chdb_connect.restype = ctypes.c_void_p
    lib.chdb_query_n.restype = ctypes.c_void_p
    lib.chdb_query_n.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    lib.chdb_close_conn.argtypes = [ctypes.c_void_p]
    for name, result in (("error", ctypes.c_void_p), ("buffer", ctypes.c_void_p), ("length", ctypes.c_size_t)):
        call = getattr(lib, "chdb_result_" + name)
        call.restype, call.argtypes = result, [ctypes.c_void_p]
    lib.chdb_destroy_query_result.argtypes = [ctypes.c_void_p]
    lib.chdb_set_signal_handlers_enabled(0)
    options = [b"wall", b"--path=../data", b"--config-file=../config.xml"]

    def connect():
        handle = lib.chdb_connect(len(options), (ctypes.c_char_p * 4)(*options, None))
        assert handle, "no connection"
        return handle, ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0]

    def run(connection, sql):
        text = sql.encode()
        result = lib.chdb_query_n(connection, text, len(text), b"TabSeparated", 12)
        error = lib.chdb_result_error(result)
        data = lib.chdb_result_buffer(result)
        out = (ctypes.string_at(error) if error else b"",
               ctypes.string_at(data, lib.chdb_result_length(result)) if data and not error else b"")
        lib.chdb_destroy_query_result(result)
        return [part.decode(errors="replace") for part in out]

    first = connect()
    answers = []
    for sql in json.load(sys.stdin):
        handle, connection = connect()
        for step in PREPARE:
            error, _ = run(connection, step)
            assert not error, error
        answers.append(run(connection, sql))
        lib.chdb_close_conn(handle)
    lib.chdb_close_conn(first[0])
    sys.stdout.write("\n" + json.dumps(answers))


if __name__ == "__main__":
    main()
