"""Words of the opinions, by level: 2 very positive, 1 positive, 0 neutral, -1 negative, -2 very negative.

VERDICTS judge the whole `{x}`. A block of CLAUSES is a domain: its first line is `domain: nouns`, and each further line
judges one aspect.
"""

VERDICTS = """
2 this is [by far|easily] the best {x} I have come across in years
2 I would give this {x} more than five stars if I could
2 I have rarely been this [happy|delighted] with a {x}
2 I cannot think of a single thing that I would change about this {x}
2 no other {x} comes close
2 I have already told everyone I know to give this {x} a chance
2 it left me speechless in the best way
2 it sets a standard that every other {x} will be measured by
2 a flawless {x} from beginning to end
2 I expected very little of this {x} and was completely won over
2 never before has a {x} impressed me so much
2 I would not have missed it for the world
2 what a triumph of a {x}
2 it is hard to imagine a better {x}
1 it is a good {x} that does what it promises
1 you could do a lot worse than this {x}
1 I [liked|enjoyed] it more than I thought I would
1 it is not perfect, yet I would choose this {x} again
1 nobody could call this {x} a disappointment
1 it is worth the money, even with its small faults
1 not a masterpiece, but a {x} that I was glad to have picked
1 this {x} is [better than most|above average]
1 I have no [real|serious] complaints about it
1 it grew on me after a slow start
1 a [solid|decent] {x} that I can recommend to most people
1 it is far from the failure that some people made it out to be
1 it gets more right than wrong
1 I can see myself coming back to it
0 it is [neither good nor bad|neither great nor terrible], just a {x} like many others
0 I have seen better and I have seen worse
0 whether this {x} suits you depends on your taste
0 some will love this {x}, and others will wonder what the fuss is about
0 it is an ordinary {x} for an ordinary price
0 my wife adored it and I could not stand it
0 I do not know yet what to think of this {x}
0 it is exactly what one expects of a {x} of this kind, no more and no less
0 it has as many strong points as weak ones
0 for every thing that works there is one that does not
0 this {x} left me [neither pleased nor annoyed|without any strong feeling]
0 I would not recommend it, nor would I advise against it
0 people asked me how it was, and I could only shrug
0 it is fine for what it is, and forgettable for the same reason
-1 I had hoped for a [little|bit] more from this {x}
-1 this is not the great {x} that everyone talks about
-1 it could have been a wonderful {x}, had anyone cared a little more
-1 there are better ways to spend the money
-1 I would not choose this {x} a second time
-1 it never quite becomes the {x} that it wants to be
-1 calling this {x} excellent, as the advertisement does, is a stretch
-1 it is hardly worth the trouble
-1 the praise that this {x} gets is a mystery to me
-1 it is not terrible, yet I was glad when it was over
-1 I kept waiting for the good part of this {x}
-1 a rather [weak|tired] {x}
-1 it falls short of what was promised
-1 I liked the idea of this {x} better than the real thing
-2 this is [without doubt|easily] the worst {x} I have ever paid for
-2 I want my money and my time back
-2 I would not recommend this {x} to my worst enemy
-2 there is nothing about this {x} that I can [praise|defend]
-2 if you love wasting your time, this is the perfect {x} for you
-2 I have never been so [angry|disappointed] with a {x}
-2 not even a free ticket could bring me back to this {x}
-2 words fail me when I try to describe how bad it is
-2 it is an insult to anyone who pays for a {x}
-2 one star is one too many for this {x}
-2 the best thing about this {x} is that it ends
-2 a complete and utter failure of a {x}
-2 stay as far away from this {x} as you can
-2 I still regret every minute that I gave to this {x}
"""

CLAUSES = """
film: film; movie; thriller; comedy
2 the camera work is breathtaking in every single shot
2 the two leads give the performances of their lives
2 the last twenty minutes had the whole audience in tears and on its feet
2 the script crackles with wit that other writers can only dream of
2 every scene is a small work of art
2 the music is so beautiful that I bought it the same night
1 the dialogue is [sharper|funnier] than I expected
1 the plot moves along [nicely|at a pleasant pace]
1 the supporting actors are a pleasure to watch
1 the jokes land more often than not
1 the ending ties things together without getting sentimental
1 the director has a good eye for faces
0 the story takes place in a fishing village in the sixties
0 it runs for a little under two hours
0 the script is based on a short story from 1931
0 the director worked as an editor before this
0 most of it was shot in Portugal with a small crew
0 the main part went to an actor from the theatre
-1 the plot loses its way around the middle
-1 the jokes are not as clever as they think they are
-1 the lead looks as if he would rather be somewhere else
-1 the ending can be seen coming from a mile away
-1 the dialogue would not win any prizes
-1 the second half could have used fewer speeches
-2 the plot makes no sense whatsoever
-2 the acting is so wooden that I feared for woodworm
-2 half of the audience left before the end, and I envied them
-2 every line is painful to listen to
-2 the effects look as if a child had glued them together
-2 watching grass grow would be thrilling next to this

book: book; novel; biography
2 the prose is so lovely that I read whole pages aloud
2 I finished it in one night and started again in the morning
2 the characters are more alive than most people I know
2 every chapter holds a surprise that takes your breath away
2 it changed the way I look at my own family
1 the chapters are short and pleasant to read
1 the author knows the subject well and explains it clearly
1 the main character is good company
1 there are some nice ideas in the last part
1 the humour is dry and mostly hits the mark
0 it has four hundred pages and an index
0 the author is a teacher from Wales
0 the story covers three generations of bakers
0 it came out in hardback in the spring
0 each chapter is told by a different sister
-1 the middle part drags a little
-1 the characters never become more than names
-1 the author says everything twice
-1 the mystery is not much of a mystery
-1 the translation reads rather stiffly
-2 I threw it across the room after fifty pages
-2 the writing is atrocious and the spelling is worse
-2 there is not one sentence that sounds like a human being wrote it
-2 it insults the reader on every page
-2 it is so dull that I fell asleep standing up

restaurant: restaurant; café; bistro
2 the soup alone is worth the journey from anywhere
2 every dish that we tried was out of this world
2 the waiters treated us like royalty from the moment we came in
2 I dream of that chocolate cake to this day
2 the fish was the finest that I have eaten in my life
1 the bread is fresh and the butter is free
1 the staff are friendly, even at busy times
1 the portions are [generous|a good size]
1 our main courses were tasty and came quickly
1 the wine list offers something nice for every purse
0 it has twelve tables and a counter
0 the menu changes at the beginning of every month
0 they serve lunch from noon until half past two
0 the kitchen is open on Sundays
0 we ordered two starters and a bottle of water
-1 the vegetables could have been warmer
-1 we waited a little too long for our bill
-1 the sauce was not as spicy as the menu claimed
-1 the portions are on the small side
-1 the waiter seemed to be thinking of other things
-2 the meat was raw and the waiter laughed when we told him
-2 two of us were sick for days afterwards
-2 I have had better meals out of a vending machine
-2 there was a cockroach in my salad
-2 they charged us a fortune for something that I would not feed to a dog

hotel: hotel; guest house; hostel
2 the view from our balcony was the most beautiful I have ever seen
2 the bed was pure heaven
2 the owners went far beyond anything that one could ask for
2 breakfast was a feast that I still dream about
2 everything was spotless and done with love
1 the room was clean and quiet
1 the people at the desk were helpful whenever we had a question
1 breakfast offered a decent choice of fruit and bread
1 the shower had plenty of hot water
1 the beach is closer than the map suggests
0 it stands next to the bus station
0 there are thirty rooms on four floors
0 check-in starts at three in the afternoon
0 the building used to be a school
0 our room had two beds, a desk and a chair
-1 the walls are thinner than they should be
-1 the room smelled a little of smoke
-1 the internet was slow on most evenings
-1 breakfast gets boring after the second day
-1 the pictures on the website flatter the rooms
-2 the sheets were filthy and nobody cared
-2 we were bitten all over by bed bugs
-2 the manager shouted at my mother and refused to apologise
-2 the toilet leaked onto our suitcases all night
-2 a prison cell would have been more comfortable

gadget: phone; camera; pair of headphones; laptop; vacuum cleaner
2 the battery lasts so long that I forgot where the charger is
2 it works like magic straight out of the box
2 the quality is stunning, and nothing at twice the price can match it
2 it has changed my daily life for the better
2 customer service replaced a part overnight and even sent flowers
1 it is easy to set up, even for my grandfather
1 it does its job without making much noise
1 the buttons are where one would expect them
1 it feels sturdy in the hand
1 it charges faster than my old one
0 it comes in black, white and grey
0 it weighs about as much as a bar of chocolate
0 the box contains a cable and a short manual
0 updates appear every two months
0 the company has made these since 2009
-1 the manual raises more questions than it answers
-1 the battery does not quite last a day
-1 the plastic feels cheaper than it should
-1 it gets rather warm after an hour
-1 the menu takes some patience
-2 it broke on the first day and so did the replacement
-2 it caught fire while I was asleep
-2 it has never worked, not for one minute
-2 the support line hung up on me four times
-2 it deleted all the pictures of my daughter's first year

concert: concert; show; musical
2 the singer's voice gave me goose bumps for two hours
2 the crowd demanded five encores and got every one
2 I have never heard a band play with so much joy
2 the finale was the most moving thing I have seen on a stage
1 the sound was clear, even in the back rows
1 the band seemed to be having a good time
1 the new songs fit in nicely with the old ones
1 the costumes were fun to look at
0 it began at eight and there was one break
0 the band played eleven songs, six of them new
0 the hall holds about nine hundred people
0 the singer wore a grey suit
-1 the drums drowned out most of the words
-1 the second half felt longer than the first
-1 the singer forgot a verse here and there
-1 we could not see much from our seats
-2 the singer was an hour late, drunk, and sang every note wrong
-2 the noise was unbearable, and I do not mean the volume
-2 people booed until the curtain came down
-2 they played for twenty minutes and left without a word

course: course; workshop; evening class
2 the teacher is the most inspiring person I have ever met
2 I learned more in two days than in four years of college
2 every lesson was a joy from the first minute to the last
2 it gave me the courage to start my own business
1 the exercises are useful and not too hard
1 the teacher answers every question with patience
1 the group was a pleasant mix of people
1 the handouts are clear and well made
0 it meets every Tuesday in a school building
0 there are ten lessons and a short test
0 the teacher used to work for a bank
0 we were fourteen people, most of them over forty
-1 the examples are somewhat out of date
-1 the pace was too slow for my liking
-1 the teacher did not always know the answers
-1 the room was too small for the group
-2 the teacher mocked us and knew nothing about the subject
-2 we were taught things that are plainly wrong
-2 it was cancelled halfway through, and nobody got a refund
-2 I left knowing less than when I came

game: game; board game; app
2 we played until sunrise and nobody wanted to stop
2 it is so clever that I laughed out loud with delight
2 my children have never loved anything this much
2 the artwork belongs in a museum
1 the rules are easy to pick up
1 it stays interesting for a good number of rounds
1 the pictures are pretty and the pieces feel nice
1 it works well with two as well as with five
0 it is meant for two to five players
0 a round takes about forty minutes
0 the players take turns and collect cards
0 it was designed by a pair of brothers
-1 luck matters more than it should
-1 the rules leave too many things open
-1 it gets repetitive after a while
-1 there is too much waiting between turns
-2 it crashes every time, and the makers do not care
-2 it is so boring that we gave up and did the dishes
-2 it is nothing but a trap to get your money
-2 my son burst into tears because it is so unfair
"""
