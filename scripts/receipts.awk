# scripts/run gives this the receipts it kept from earlier runs ($kept), then those of this run, one
# JSON object a line. It prints the first few and the sums, keeps what was committed, and compares
# each duplicate with the receipt kept for the same batch: they are equal but for the status, or the
# exit status is 1.

function member(name,    at, text)
{
    at = index($0, "\"" name "\":")
    if (!at) {
        return ""
    }
    text = substr($0, at + length(name) + 3)
    sub(/^ */, "", text)
    if (text ~ /^"/) {
        text = substr(text, 2)
        sub(/".*/, "", text)
    } else {
        sub(/[,}].*/, "", text)
    }
    return text
}

{
    status = member("status")
    batch = member("batch_id")
    fact = member("batch_digest") " " member("events") " " member("first_event_id") " " member("last_event_id")
}

FILENAME == kept {
    known[batch] = fact
    next
}

status == "committed" {
    committed++
    committed_events += member("events")
    known[batch] = fact
    print >>kept
}

status == "duplicate" {
    duplicates++
    duplicate_events += member("events")
    if (!(batch in known)) {
        unknown++
    } else if (known[batch] == fact) {
        same++
    } else {
        different++
        print "  " batch ": this receipt differs from the first one: " known[batch]
    }
}

status == "committed" || status == "duplicate" {
    if (++shown <= 4) {
        printf "  %s %-28s %5d events  %s .. %s\n", status, batch, member("events"), member("first_event_id"), \
            member("last_event_id")
    }
}

END {
    if (shown > 4) {
        print "  ... (all of them: " receipts ")"
    }
    printf "  %d batches committed (%d events), %d duplicates (%d events)", committed, committed_events, duplicates, \
        duplicate_events
    if (duplicates) {
        printf "; of these %d have the receipt of the first time", same
        if (unknown) {
            printf ", for %d none was kept here", unknown
        }
    }
    print ""
    if (!committed && !duplicates) {
        print "  no receipt at all"
        exit 1
    }
    exit different ? 1 : 0
}
