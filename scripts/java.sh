# Finds a Java that Spark can run on. Sourced by setup.sh.
oldest_java=17

# Prints the major version and the home of the Java behind a command, as that Java itself tells them.
describe_java() {
    "$1" -XshowSettings:properties -version 2>&1 | awk -F ' = ' '
        $1 ~ /java\.specification\.version$/ { version = $2 }
        $1 ~ /java\.home$/ { home = $2 }
        END { sub(/^1\./, "", version); if (version == "" || home == "") exit 1; print version, home }'
}

# Prints the home of the first Java that is new enough: JAVA_HOME, the PATH, the private one, then the system's others.
find_java() {
    local private=$1 candidate described version home
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" "$private/bin/java" \
        /usr/lib/jvm/*/bin/java; do
        [[ -n $candidate && -x $candidate ]] || continue
        described=$(describe_java "$candidate") || continue
        version=${described%% *} home=${described#* }
        if ((version < oldest_java)); then
            echo "setup: passing over Java $version at $home: Spark needs $oldest_java or newer" >&2
            continue
        fi
        # The private java is a script around another home; Spark must come in through the script.
        [[ $candidate == "$private/bin/java" ]] && home=$private
        echo "$home"
        return
    done
    return 1
}
