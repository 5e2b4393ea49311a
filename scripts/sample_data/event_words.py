"""Words of the news-like reports.

A block of EVENTS describes one event. Its first line is `group name`, the next lines are wordings of the same report,
and `{slots}` stand for its facts (values in SLOTS). A line that begins with `>` follows from every wording; a line
that begins with `!` contradicts every wording.
"""

SLOTS = {
    "place": "Portugal; Chile; Italy; Nepal; Turkey; Morocco; Ecuador; Malaysia; "
    "Mexico; Greece; New Zealand; Canada; Romania; Senegal",
    "town": "Lyon; Tampere; Cardiff; Porto; Graz; Bergen; Hobart; Valencia; Ghent; Kraków; "
    "Utrecht; Halifax; Aarhus; Bilbao",
    "number": "three; five; eight; eleven; fourteen; twenty; thirty-two; fifty; seventy; ninety",
    "few": "three; five; six; eight; nine; eleven; twelve; fourteen",
    "relic": "clay tablet; gold ring; silver coin; sword; bronze bell; stone axe; glass bowl; bone comb",
    "share": "2%; 4%; 7%; 9%; 12%; 15%; 18%; 25%; 30%",
    "sum": "$3 million; $8 million; $20 million; $45 million; $90 million; $300 million; $600 million; $1 billion",
    "day": "Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday",
    "firm": "a Danish brewery; a Korean shipyard; a Swiss bank; an Indian airline; a French carmaker; "
    "a Finnish paper mill; a Spanish supermarket chain; a Polish software house; a Dutch toy maker; "
    "a Brazilian coffee trader",
    "animal": "sea turtle; brown bear; white stork; river otter; snow leopard; harbour seal; barn owl; grey wolf; lynx",
    "team": "Ghana; Sweden; Uruguay; South Korea; Croatia; Denmark; Algeria; Belgium; Paraguay; Wales",
    "thing": "painting; clay tablet; diary; violin; gold ring; manuscript; map; silver coin; letter; sword",
}

EVENTS = """
disaster earthquake
An earthquake in {place} [killed|claimed the lives of] {number} people on {day}, officials said.
{number} people [died|lost their lives] when an earthquake [struck|hit] {place} on {day}.
The death toll of {day}'s quake in {place} stands at {number}.
Quake in {place} leaves {number} dead.
> People lost their lives because the ground shook.
> There was a deadly natural disaster in {place}.
! Nobody died in the earthquake in {place}.
! There has been no earthquake in {place} in living memory.

disaster flood
Floods in {place} have [forced|driven] {number} families from their homes, rescuers said on {day}.
{number} families in {place} had to leave their houses because of [high water|flooding] on {day}.
Rising rivers [drove out|displaced] {number} families in {place}.
> Water made people leave their homes.
> Families in {place} could not stay in their houses.
! A long drought has dried up every river in {place}.
! All families in {place} were able to stay at home.

disaster fire
A fire destroyed {few} shops in the [centre|old town] of {town} on {day}.
{few} shops in {town} [burned down|went up in flames] on {day}.
In {town}, flames [destroyed|ruined] {few} shops on {day}, the fire brigade reported.
Fire in {town}: {few} shops gone.
> Buildings in {town} were damaged by fire.
> Some shop owners in {town} lost their premises.
! The fire in {town} was put out before it did any damage.
! Not a single shop in {town} has ever caught fire.

disaster bus crash
A [coach|tourist bus] left the road near {town} on {day}, injuring {few} passengers.
{few} passengers were hurt when a [bus|coach] [skidded|slid] off a road near {town} on {day}.
A bus accident outside {town} [injured|hurt] {few} travellers.
> Passengers of a vehicle were injured.
> There was a road accident near {town}.
! Every passenger left the bus near {town} without a scratch.
! The bus reached {town} safely and on time.

disaster storm
A storm cut [power|electricity] to {number} villages in {place} on {day}.
{number} villages in {place} [were left without electricity|had no power] after {day}'s storm.
Strong winds [brought down|tore down] power lines in {place}, and {number} villages went dark.
> Bad weather caused a power failure.
> The lights went out in some villages in {place}.
! The weather in {place} was calm and every village had power.
! The storm passed {place} without touching the power lines.

politics election
The [opposition|opposition party] in {place} won {share} more votes than the government on {day}.
Voters in {place} gave the opposition a lead of {share} over the government on {day}.
On {day}, {place}'s opposition [beat|defeated] the ruling party by {share}.
> The government of {place} did not win the vote.
> People in {place} have voted.
! The ruling party of {place} won the election.
! The election in {place} was called off before anyone could vote.

politics tax
[Lawmakers|Members of parliament] in {place} voted on {day} to raise the tax on sugar by {share}.
Sugar will be taxed {share} more in {place}, parliament decided on {day}.
Parliament in {place} [approved|passed] a {share} increase of the sugar tax.
> Sweet things will become more expensive in {place}.
> A tax is going up in {place}.
! Parliament in {place} abolished the tax on sugar.
! The tax on sugar in {place} stays as it is.

politics strike
Train drivers in {place} [went on strike|stopped work] on {day} and demanded {share} more pay.
Railways in {place} stood still on {day} as drivers [asked for|called for] a pay rise of {share}.
A strike for {share} higher wages halted trains in {place}.
> Railway workers in {place} want more money.
> Travellers in {place} could not rely on the train.
! All trains in {place} ran normally that day.
! Train drivers in {place} are satisfied with their pay.

politics talks
The [leaders|presidents] of {place} and Norway met on {day} to discuss fishing rights.
Fishing rights were the subject of talks between {place} and Norway on {day}.
On {day}, Norway and {place} [negotiated|held talks] about who may fish where.
> Two countries talked about fishing.
> Norway spoke with another country.
! Norway refused to meet anyone from {place}.
! The talks between {place} and Norway were about weapons only.

business profit
{firm} [reported|posted] a profit of {sum} for the year on {day}.
Yearly profits of {firm} [came to|reached] {sum}, the company announced on {day}.
{firm} earned {sum} last year.
> A company made money.
> {firm} ended the year with a gain.
! {firm} lost money in every month of the year.
! {firm} closed down years ago.

business layoffs
{firm} will cut {share} of its [jobs|workforce], it announced on {day}.
{share} of the [workers|staff] at {firm} are to lose their jobs, managers said on {day}.
On {day}, {firm} said that it would [dismiss|lay off] {share} of its employees.
> Some people will lose their jobs.
> {firm} will employ fewer people than before.
! {firm} promised not to dismiss anyone.
! {firm} plans to hire hundreds of new workers.

business takeover
{firm} [bought|acquired] a rival from {town} for {sum} on {day}.
A company in {town} was sold to {firm} for {sum} on {day}.
{firm} pays {sum} for a competitor based in {town}.
> A company changed hands.
> {firm} spent money on another company.
! {firm} decided against buying its rival in {town}.
! {firm} was itself bought by a rival from {town}.

business shares
Shares in {firm} [fell|dropped] by {share} on {day} after a weak forecast.
A weak forecast [sent|pushed] the stock of {firm} down {share} on {day}.
Investors sold stock of {firm}, which lost {share} of its value.
> Shares in {firm} are worth less than before.
> Investors were not happy with {firm}.
! Shares in {firm} climbed to a record.
! The price of shares in {firm} did not move.

business shares up
Shares in {firm} [rose|climbed] by {share} on {day} after a strong forecast.
A strong forecast [sent|pushed] the stock of {firm} up {share} on {day}.
Investors rushed to buy stock of {firm}, which gained {share} in value.
> Shares in {firm} are worth more than before.
> Investors were pleased with {firm}.
! Shares in {firm} fell to their lowest price ever.
! Nobody wanted to buy shares in {firm}.

science animal count
Researchers counted {number} [pairs|breeding pairs] of the {animal} in {place} this spring.
In {place}, scientists found {number} breeding pairs of the {animal} this spring.
This spring's count of the {animal} in {place} [came to|ended at] {number} pairs.
> There are animals of this kind in {place}.
> Scientists looked for a wild animal.
! The {animal} has died out in {place}.
! Researchers found no trace of the {animal} in {place}.

science release
A {animal} that had been [nursed|cared for] at a clinic in {town} was set free on {day}.
On {day}, vets in {town} [released|let go] a {animal} that they had nursed back to health.
The clinic in {town} returned a {animal} to the wild on {day}.
> An animal was given its freedom.
> Someone took care of a wild animal.
! The {animal} in {town} died before it could be released.
! The clinic in {town} will keep the {animal} in a cage for good.

science find
A hiker [found|discovered] a {relic} more than a thousand years old near {town} on {day}.
Near {town}, a {relic} from over a thousand years ago was [found|discovered] by a walker on {day}.
A {relic} that is over ten centuries old has been [found|unearthed] by a hiker outside {town}.
> Something very old was found.
> A person who was walking found an old object.
! The {relic} found near {town} was made last year.
! Nobody has found anything old near {town}.

science telescope
Astronomers in {place} [spotted|observed] {few} new comets with a telescope, they said on {day}.
A telescope in {place} has found {few} comets that nobody knew, scientists announced on {day}.
{few} unknown comets have been seen from {place}.
> Comets were discovered.
> Scientists looked at the sky.
! The telescope in {place} broke before it saw a single comet.
! Astronomers in {place} have not found any comets.

sport win
{team} [beat|defeated] Austria by {few} points in the basketball final on {day}.
On {day}, Austria lost the basketball final to {team} by {few} points.
{team} won the basketball final against Austria with a margin of {few} points.
> Austria did not win the final.
> {team} played basketball.
! Austria won the final against {team}.
! The final between {team} and Austria was cancelled.

sport record
A runner from {team} [broke|beat] the marathon record in {town} on {day}.
In {town}, the marathon record [fell to|was broken by] an athlete from {team} on {day}.
{day}'s marathon in {town} was won in record time by a runner from {team}.
> Someone ran faster than anybody before.
> There was a race in {town}.
! The marathon in {town} was called off because of the heat.
! The runner from {team} gave up halfway through the race in {town}.

sport coach
The coach of {team} [resigned|stepped down] on {day} after {few} defeats in a row.
After losing {few} games in a row, {team}'s coach [quit|gave up the job] on {day}.
{team} is without a coach after {few} straight losses.
> {team} needs a new coach.
> {team} has been losing games.
! The coach of {team} signed a new contract for five years.
! {team} has not lost a game all season.

culture museum
A museum in {town} [opened|opened its doors] on {day} with {few} rooms of glass art.
{few} rooms of glass art can be seen in {town}'s new museum, which [opened|welcomed its first visitors] on {day}.
{town} has a new museum for glass art with {few} rooms.
> There is a place in {town} where one can look at art.
> Works made of glass are on show.
! The museum in {town} was torn down and will not be rebuilt.
! The museum in {town} shows nothing but steam engines.

culture auction
A {thing} was [sold|auctioned] in {town} for {sum} on {day}.
On {day}, a buyer in {town} paid {sum} for a {thing}.
{sum} is what a {thing} [fetched|brought in] at an auction in {town}.
> Somebody spent a lot of money.
> A {thing} has a new owner.
! No bidder in {town} wanted the {thing}, so it was not sold.
! The {thing} was given to a school in {town} for free.

culture theft
Thieves [stole|took] a {thing} worth {sum} from a gallery in {town} on {day}.
On {day}, a {thing} worth {sum} [was stolen|disappeared] from a gallery in {town}.
A gallery in {town} was robbed of a {thing} valued at {sum}.
> Something valuable is missing from a gallery.
> A crime took place in {town}.
! Thieves left the gallery in {town} with empty hands.
! The gallery in {town} gave the {thing} away as a present.

culture festival
{few} bands will play at a free [festival|music festival] in {town} on {day}.
On {day}, {town} invites everyone to a free festival with {few} bands.
A free festival in {town} brings together {few} bands on {day}.
> There will be live music in {town}.
> One does not have to pay to hear the bands.
! Tickets for the festival in {town} cost more than ever.
! The festival in {town} has been cancelled, so no band will play.
"""
