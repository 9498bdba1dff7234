/* A compile in a process of its own, for modules that ask for it. The library starts it.
 *
 * usage: onstream-compile REQUEST ANSWER, two files */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "jit/isolated.h"

int main(int count, char** words) {
  if (count != 3) {
    fputs("usage: onstream-compile REQUEST ANSWER\n"
          "Compiles for a process that runs onstream; it is not meant for people: there "
          "are onstream and onstream-bundle.\n",
          stderr);
    return 2;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* who waits for it is gone */
  if (getppid() == 1) return 1;
  return ons__isolated_serve(words[1], words[2]) ? 0 : 1;
}
