# SPDX-License-Identifier: Apache-2.0
# zd_lm: what zerod-lm computes and reads, without any network: the model, the text, the launch, the schedule.
add_library(zd_lm STATIC
  ${CMAKE_CURRENT_LIST_DIR}/attention.c
  ${CMAKE_CURRENT_LIST_DIR}/bf16.c
  ${CMAKE_CURRENT_LIST_DIR}/block.c
  ${CMAKE_CURRENT_LIST_DIR}/config.c
  ${CMAKE_CURRENT_LIST_DIR}/launch.c
  ${CMAKE_CURRENT_LIST_DIR}/matrix.c
  ${CMAKE_CURRENT_LIST_DIR}/model.c
  ${CMAKE_CURRENT_LIST_DIR}/ops.c
  ${CMAKE_CURRENT_LIST_DIR}/sample.c
  ${CMAKE_CURRENT_LIST_DIR}/schedule.c
  ${CMAKE_CURRENT_LIST_DIR}/text.c
  ${CMAKE_CURRENT_LIST_DIR}/trig.c)
# The loops of ops.c are written for vectors, which gcc 12 makes of them at -O3 and if comparisons need not trap; neither changes a bit.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/ops.c ${CMAKE_CURRENT_LIST_DIR}/bf16.c
  PROPERTIES COMPILE_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-O3;-fno-trapping-math>")
target_link_libraries(zd_lm PUBLIC zd_flags zd_wire PkgConfig::OPENBLAS m)
