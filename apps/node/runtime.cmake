# The daemon: everything put together, as a library for `troupe run` and the program trouped.
troupe_library(troupe_node
  SOURCES local.cpp process_launcher.cpp runtime.cpp runtime_steps.cpp
  PUBLIC troupe_node_config troupe_actors troupe_rpc troupe_peer troupe_ucx)
troupe_program(trouped
  SOURCES main.cpp keeper.cpp
  PRIVATE troupe_node CLI11::CLI11)
