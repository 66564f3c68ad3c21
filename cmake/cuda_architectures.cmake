# ferry_cuda_architectures(LIST FOUND NVCC): sets LIST to the compute capabilities of this machine's GPUs, for machine
# code of their own, and FOUND to true. Where there is no GPU that ferry and this nvcc know, LIST is 80, which the
# driver of a GPU of 9.0 or newer compiles again at the first start.
function(ferry_cuda_architectures list found nvcc)
  set(${list} 80 PARENT_SCOPE)
  set(${found} OFF PARENT_SCOPE)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE here RESULT_VARIABLE failed ERROR_QUIET TIMEOUT 30)
  execute_process(COMMAND ${nvcc} --list-gpu-code OUTPUT_VARIABLE known RESULT_VARIABLE unknown ERROR_QUIET)
  if(failed OR unknown)
    return()
  endif()
  set(capabilities "")
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" here "${here}")
  foreach(capability ${here})
    string(REPLACE "." "" capability ${capability})
    if(capability GREATER_EQUAL 80 AND known MATCHES "sm_${capability}[^0-9a-z]")
      list(APPEND capabilities ${capability})
    endif()
  endforeach()
  if(capabilities)
    list(REMOVE_DUPLICATES capabilities)
    list(SORT capabilities COMPARE NATURAL)
    set(${list} ${capabilities} PARENT_SCOPE)
    set(${found} ON PARENT_SCOPE)
  endif()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE) # cmake -P: says what it finds
  ferry_cuda_architectures(list found nvcc)
  message("${list} ${found}")
endif()
