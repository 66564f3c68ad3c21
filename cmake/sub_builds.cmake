# The same sources with sanitizers, as builds inside this one: <build>/asan, <build>/tsan and, where clang and its
# libFuzzer are, <build>/fuzz. They are built one after the other (the terminal is one), so that a small machine does not run three builds at once.
include(ExternalProject)

function(ferry_sub_build name sanitize c_compiler)
  ExternalProject_Add(${name}
    SOURCE_DIR ${CMAKE_SOURCE_DIR}
    BINARY_DIR ${CMAKE_BINARY_DIR}/${name}
    PREFIX ${CMAKE_BINARY_DIR}/${name}-stamps
    CMAKE_ARGS -DFERRY_SANITIZE=${sanitize} -DFERRY_SHARED=${FERRY_SHARED} -DCMAKE_C_COMPILER=${c_compiler}
    BUILD_COMMAND ${CMAKE_COMMAND} --build <BINARY_DIR> --target checks
    INSTALL_COMMAND ""
    BUILD_ALWAYS ON
    USES_TERMINAL_BUILD ON
    ${ARGN})
endfunction()

ferry_sub_build(asan address ${CMAKE_C_COMPILER})
ferry_sub_build(tsan thread ${CMAKE_C_COMPILER} DEPENDS asan)
if(FERRY_FUZZ_CLANG)
  ferry_sub_build(fuzz fuzz ${FERRY_FUZZ_CLANG} DEPENDS tsan)
endif()
