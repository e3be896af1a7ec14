/* verbs: the one table of what the program can do. Each verb is a function in a file of its own.
 *
 * X(name, one line for the help). `int verb_NAME(int argc, char **argv)` gets argv[0] = its name
 * and returns the exit code: 0 done, 1 failed, 2 wrong usage or configuration, 3 `verify` found a
 * violation, 4 `backup` left something out (docs/OPERATING.md, section 2). */
#ifndef MAIN_VERBS_H
#define MAIN_VERBS_H

#define VERBS(X)                                                        \
    X(serve, "run the server on a data directory")                      \
    X(deliver, "bring accepted artifacts to their destinations")        \
    X(append, "send events from a file, and print the receipts")        \
    X(replay, "print events in the order of the journal")               \
    X(follow, "print events as they are committed")                     \
    X(streams, "list the streams and where they stand")                 \
    X(retire, "retire a source of the history for good")                \
    X(project, "create, change, list and show projects")                \
    X(key, "create, list and revoke the keys of a project")             \
    X(query, "ask the delivered events of a project with SQL")          \
    X(rejected, "list the events of a project that could not be taken") \
    X(put, "hand files over, and print their receipts")                 \
    X(resume, "go on with files that put has not finished")             \
    X(artifact, "show what is known of an uploaded file")               \
    X(deliveries, "list what is on its way, and what has arrived")      \
    X(packages, "print packages and deliveries as JSON lines")          \
    X(park, "list and retry what waits for a person")                   \
    X(receipt, "print the receipt of an uploaded file")                 \
    X(head, "print where the journal stands, signed")                   \
    X(seal, "compress closed generations of the history")               \
    X(backup, "copy a data directory, also beside a running server")    \
    X(restore, "make a data directory of a backup")                     \
    X(sinks, "pause and resume all deliveries")                         \
    X(reindex, "make the index of the history anew, without a server")  \
    X(verify, "check a data directory, also beside a running server")   \
    X(status, "ask a running server how it is")                         \
    X(version, "print version and revision")

#define X(name, help) int verb_##name(int argc, char **argv);
VERBS(X)
#undef X

#endif
