# Installs the component `program` of the build tree BUILD into DIRECTORY, and tests what a package has:
#   cmake -DBUILD=... -DDIRECTORY=... -P installed_program.cmake
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${DIRECTORY})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --component program --prefix ${DIRECTORY}
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
foreach(file bin/ferry share/doc/ferry/README.md share/doc/ferry/CHANGELOG.md
             share/doc/ferry/docs/running.md share/man/man1/ferry.1 share/man/man1/ferry-convert.1
             share/bash-completion/completions/ferry share/zsh/vendor-completions/_ferry
             share/fish/vendor_completions.d/ferry.fish)
  if(NOT EXISTS ${DIRECTORY}/${file})
    message(FATAL_ERROR "${file} is not installed")
  endif()
  file(SIZE ${DIRECTORY}/${file} size)
  if(size LESS 200)
    message(FATAL_ERROR "${file} has ${size} bytes")
  endif()
endforeach()
foreach(other lib lib64 include)
  if(EXISTS ${DIRECTORY}/${other})
    message(FATAL_ERROR "${other} belongs to the library")
  endif()
endforeach()
execute_process(COMMAND ${DIRECTORY}/bin/ferry --version OUTPUT_VARIABLE version
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT version MATCHES "^ferry [0-9]+[.][0-9]+[.][0-9]+")
  message(FATAL_ERROR "--version says ${version}")
endif()
