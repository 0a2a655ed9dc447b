#!/bin/sh
# Copies programs into a folder without their debug information, which goes to FOLDER/debug/PROGRAM.debug: what runs stays
# small, and who looks into a crash hands gdb or addr2line the file beside it. Function names stay in the program, for
# backtraces.
#
#   deploy/split-debug.sh FOLDER PROGRAM...
set -eu
out=$1
shift
mkdir -p "$out/debug"
for program in "$@"; do
	name=${program##*/}
	objcopy --only-keep-debug "$program" "$out/debug/$name.debug"
	objcopy --strip-debug --add-gnu-debuglink="$out/debug/$name.debug" "$program" "$out/$name"
done
