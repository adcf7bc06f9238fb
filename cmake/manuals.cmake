# Lets the program write its man pages and completions below DIRECTORY, which has the layout of share/:
#   cmake -DFERRY="PROGRAM..." -DDIRECTORY=... -P manuals.cmake
# Removes old pages first, because the program replaces no files.
file(REMOVE_RECURSE ${DIRECTORY})
set(bash ${DIRECTORY}/bash-completion/completions)
set(zsh ${DIRECTORY}/zsh/vendor-completions)
set(fish ${DIRECTORY}/fish/vendor_completions.d)
file(MAKE_DIRECTORY ${DIRECTORY}/man/man1 ${bash} ${zsh} ${fish})

function(ferry)
  execute_process(COMMAND ${FERRY} ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

ferry(help --man-pages ${DIRECTORY}/man/man1)
ferry(completion bash OUTPUT_FILE ${bash}/ferry)
ferry(completion zsh OUTPUT_FILE ${zsh}/_ferry)
ferry(completion fish OUTPUT_FILE ${fish}/ferry.fish)
