troupe_test(fuzz_control SOURCES fuzz_control.cpp PRIVATE troupe_peer troupe_transport LABELS fuzz)
